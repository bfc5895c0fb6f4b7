// What a trainer's step is compiled from, found by reading: the sources of its CMake target, whatever they include of
// this tree, the sources that belong to an included header (same name), device code of the libraries that the target
// links, and the flags. No list of folders: files may move, as long as `stepscope_stage(TRAINER_trainer …)` names them
// (of the trainer `reference`: `stepscope_stage(gpt2_reference …)`).
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace gate {

// code: what is hashed of a source is code_of it (code_text.h), so a comment changes no step. bytes: the file as it is, as receipts and verdicts
// up to 2026-12-01 have it.
enum class HashOf { code, bytes };

// Path relative to `root` with '/' separators -> SHA-256 in hex. A CMake file has the suffix "#flags": hashed are its
// statements that set a compiler's flags, architecture, standard, definitions or build type, since a new source file
// elsewhere changes no step. Empty when `root` has no such target.
std::map<std::string, std::string> hash_step_sources(const std::filesystem::path& root, const std::string& trainer,
                                                     HashOf what = HashOf::code);

}  // namespace gate
