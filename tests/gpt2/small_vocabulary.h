// A vocabulary small enough to work out ids by hand, and where the real one may be.
#pragma once
#include <cstdlib>
#include <string>

namespace gpt2::testing {

// Bytes have ids 0 to 255: 'a' 64, ' ' 220, '\n' 198. "Ġ" spells the space, "Ċ" the line feed.
inline constexpr const char* kSmallMerges =
    "#version: 0.2\n"
    "h e\n"      // 256
    "l l\n"      // 257
    "he ll\n"    // 258
    "hell o\n"   // 259
    "Ġ w\n"      // 260
    "o r\n"      // 261
    "Ġw or\n"    // 262
    "l d\n"      // 263
    "Ġwor ld\n"  // 264
    "Ċ Ċ\n"      // 265
    "a a\n"      // 266
    "Ã ©\n";     // 267: é
inline constexpr int kSmallEndOfText = 268;

// Folder with GPT-2's vocab.bpe and encoder.json and llm.c's tiny_shakespeare_{train,val}.bin of
// tinyshakespeare.txt; they are not part of this repository. Empty: tests that need them skip themselves.
inline std::string real_data_folder() {
  const char* folder = std::getenv("STEPSCOPE_GPT2_DATA");
  return folder ? folder : "";
}
inline constexpr const char* kNoRealData =
    "STEPSCOPE_GPT2_DATA names no folder with vocab.bpe, encoder.json, tinyshakespeare.txt and "
    "tiny_shakespeare_{train,val}.bin";

}  // namespace gpt2::testing
