#include "experiments/gate/source_scan.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <vector>

#include "base/read_file.h"
#include "base/sha256.h"
#include "experiments/gate/code_text.h"

namespace gate {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) { return stepscope::read_file_if_there(file).value_or(""); }

std::string name_of(const fs::path& file, const fs::path& root) {
  return file.lexically_normal().lexically_relative(root.lexically_normal()).generic_string();
}

// One statement of a CMake file: command(arguments), without comments.
struct Statement {
  std::string command;
  std::vector<std::string> arguments;
  std::string text() const {
    std::string out = command + "(";
    for (const std::string& a : arguments) out += a + " ";
    return out + ")";
  }
};

std::vector<Statement> statements_of(const std::string& text) {
  std::vector<Statement> out;
  std::string word;
  int depth = 0;
  bool quoted = false, comment = false;
  const auto end_of_word = [&] {
    if (!word.empty() && depth > 0) out.back().arguments.push_back(word);
    if (depth > 0) word.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (comment) {
      comment = c != '\n';
      continue;
    }
    if (quoted) {
      if (c == '"' && text[i - 1] != '\\')
        quoted = false;
      else
        word += c;
      continue;
    }
    if (c == '#') {
      comment = true;
    } else if (c == '"' && depth > 0) {
      quoted = true;
    } else if (c == '(') {
      if (depth++ == 0) {
        out.push_back({word, {}});
        word.clear();
      } else {
        word += c;
      }
    } else if (c == ')') {
      if (depth == 1) end_of_word();
      if (depth > 1) word += c;
      depth = std::max(0, depth - 1);
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      end_of_word();
      if (depth == 0) word.clear();
    } else {
      word += c;
    }
  }
  return out;
}

bool sets_flags(const Statement& s) {
  std::string text = s.text();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"flags", "compile_options", "compile_definitions", "compile_features", "architectures", "build_type", "standard",
                           "extensions", "add_definitions", "properties"})
    if (text.find(word) != std::string::npos) return true;
  return false;
}

struct CMakeFile {
  fs::path path;
  std::vector<Statement> statements;
};

struct Target {
  const CMakeFile* file = nullptr;
  std::vector<std::string> sources, links;
};

// The CPU reference is the oracle's stage as well, and has its name.
std::string target_name(const std::string& trainer) { return trainer == "reference" ? "gpt2_reference" : trainer + "_trainer"; }

class Scan {
 public:
  explicit Scan(fs::path root) : root_(std::move(root)) {
    std::error_code missing;
    for (auto it = fs::recursive_directory_iterator(root_, fs::directory_options::skip_permission_denied, missing);
         it != fs::recursive_directory_iterator(); ++it) {
      const std::string name = it->path().filename().string();
      if (it->is_directory() && (name.starts_with(".") || name.starts_with("build") || name == "tests" || is_another_tree(it->path()))) {
        it.disable_recursion_pending();
      } else if (it->is_regular_file() && (name == "CMakeLists.txt" || name.ends_with(".cmake"))) {
        cmake_.push_back({it->path(), statements_of(text_of(it->path()))});
      }
    }
  }

  std::map<std::string, std::string> hashes(const std::string& trainer, HashOf what) {
    const std::string name = target_name(trainer);
    const Target target = target_of(name);
    if (target.file == nullptr) return {};
    for (const std::string& source : target.sources) take(target, source, false);
    std::set<std::string> done{name};
    take_links(target, done);
    std::map<std::string, std::string> out;
    for (const fs::path& file : found_)
      out[name_of(file, root_)] = what == HashOf::bytes ? gpt2::sha256_file(file) : gpt2::sha256_text(code_of(text_of(file)));
    for (const CMakeFile* file : with_modules()) {
      std::string flags;
      for (const Statement& s : file->statements)
        if (sets_flags(s)) flags += s.text() + "\n";
      out[name_of(file->path, root_) + "#flags"] = gpt2::sha256_text(flags);
    }
    return out;
  }

 private:
  // A git worktree or a Python environment that somebody keeps inside the checkout has CMake files of its own.
  static bool is_another_tree(const fs::path& folder) {
    std::error_code unreadable;
    for (const char* mark : {".git", "pyvenv.cfg", "conda-meta"})
      if (fs::exists(folder / mark, unreadable)) return true;
    return false;
  }
  Target target_of(const std::string& name) const {
    for (const CMakeFile& file : cmake_)
      for (const Statement& s : file.statements) {
        if ((s.command != "stepscope_stage" && s.command != "add_library") || s.arguments.empty() || s.arguments[0] != name) continue;
        Target t{&file, {}, {}};
        std::string part = "SOURCES";
        for (size_t i = 1; i < s.arguments.size(); ++i) {
          const std::string& a = s.arguments[i];
          if (a == "RANK" || a == "SOURCES" || a == "LINKS" || a == "PUBLIC_LIBS" || a == "PRIVATE_LIBS") {
            part = a;
          } else if (part == "SOURCES") {
            for (const std::string& value : values_of(a)) t.sources.push_back(value);
          } else if (part == "LINKS") {
            t.links.push_back(a);
          }
        }
        return t;
      }
    return {};
  }

  // "${NAME}" as every value that some CMake file gives it; "${CMAKE_CURRENT_LIST_DIR}/x" as x.
  std::vector<std::string> values_of(const std::string& word) const {
    const std::string here = "${CMAKE_CURRENT_LIST_DIR}/";
    if (word.starts_with(here)) return {word.substr(here.size())};
    if (!word.starts_with("${") || !word.ends_with("}")) return {word};
    const std::string name = word.substr(2, word.size() - 3);
    std::vector<std::string> out;
    for (const CMakeFile& file : cmake_)
      for (const Statement& s : file.statements)
        if (s.command == "set" && !s.arguments.empty() && s.arguments[0] == name)
          for (size_t i = 1; i < s.arguments.size(); ++i)
            for (const std::string& value : values_of(s.arguments[i])) out.push_back(value);
    return out;
  }

  void take(const Target& target, const std::string& source, bool device_code_only) {
    if (device_code_only && !source.ends_with(".cu")) return;
    files_.insert(target.file);
    follow(target.file->path.parent_path() / source);
  }

  void take_links(const Target& target, std::set<std::string>& done) {
    for (const std::string& link : target.links) {
      if (!done.insert(link).second) continue;
      const Target linked = target_of(link);
      if (linked.file == nullptr) continue;
      files_.insert(linked.file);
      for (const std::string& source : linked.sources) take(linked, source, true);
      take_links(linked, done);
    }
  }

  // The file, what it includes of this tree, and of a header the source of the same name.
  void follow(const fs::path& start) {
    std::vector<fs::path> todo{start};
    while (!todo.empty()) {
      const fs::path file = todo.back().lexically_normal();
      todo.pop_back();
      if (!fs::is_regular_file(file) || !found_.insert(file).second) continue;
      const std::string extension = file.extension().string();
      if (extension == ".h" || extension == ".cuh" || extension == ".hpp")
        for (const char* source : {".cpp", ".cu"}) todo.push_back(fs::path(file).replace_extension(source));
      for (const std::string& included : includes_of(file)) {
        todo.push_back(root_ / included);
        todo.push_back(file.parent_path() / included);
      }
    }
  }

  static std::vector<std::string> includes_of(const fs::path& file) {
    std::vector<std::string> out;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const size_t hash = line.find_first_not_of(" \t");
      if (hash == std::string::npos || line[hash] != '#') continue;
      const size_t word = line.find_first_not_of(" \t", hash + 1);
      if (word == std::string::npos || line.compare(word, 7, "include") != 0) continue;
      const size_t open = line.find_first_of("\"<", word);
      if (open == std::string::npos) continue;
      const size_t close = line.find(line[open] == '"' ? '"' : '>', open + 1);
      if (close != std::string::npos) out.push_back(line.substr(open + 1, close - open - 1));
    }
    return out;
  }

  // The CMake files of the targets, those of the folders above them, and the modules that these include.
  std::set<const CMakeFile*> with_modules() const {
    std::set<const CMakeFile*> all = files_;
    for (const CMakeFile* file : files_)
      for (const CMakeFile& other : cmake_) {
        const std::string folder = name_of(other.path.parent_path(), root_);
        const bool above = folder == "." || name_of(file->path, root_).starts_with(folder + "/");
        if (above && other.path.filename() == "CMakeLists.txt") all.insert(&other);
      }
    for (bool grew = true; grew;) {
      grew = false;
      for (const CMakeFile* file : std::set<const CMakeFile*>(all))
        for (const Statement& s : file->statements) {
          if (s.command != "include" || s.arguments.empty()) continue;
          for (const CMakeFile& other : cmake_)
            if (other.path == (file->path.parent_path() / s.arguments[0]).lexically_normal() ||
                other.path == root_ / "cmake" / (s.arguments[0] + ".cmake"))  // a module of CMake's own is no file of ours
              grew = all.insert(&other).second || grew;
        }
    }
    return all;
  }

  fs::path root_;
  std::vector<CMakeFile> cmake_;
  std::set<const CMakeFile*> files_;
  std::set<fs::path> found_;
};

}  // namespace

std::map<std::string, std::string> hash_step_sources(const fs::path& root, const std::string& trainer, HashOf what) {
  return Scan(fs::absolute(root).lexically_normal()).hashes(trainer, what);
}

}  // namespace gate
