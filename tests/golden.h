// Texts that people and programs read, held as whole files below tests/: a changed digit, row or word anywhere in them is seen. To accept
// a change of an output: run the test with STEPSCOPE_WRITE_GOLDEN=1, look at the difference, commit it.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

// `file` below tests/, "profiler/data/gpu.kernels.txt".
inline void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = SOURCE_DIR "/tests/" + file;
  if (std::getenv("STEPSCOPE_WRITE_GOLDEN")) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  std::ifstream in(path, std::ios::binary);
  const std::string kept{std::istreambuf_iterator<char>(in), {}};
  if (kept == text) return;
  const auto [in_file, now] = std::mismatch(kept.begin(), kept.end(), text.begin(), text.end());
  const auto line_at = [](const std::string& all, auto at) {
    const auto before = std::string_view(all).substr(0, static_cast<size_t>(at - all.begin()));
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return all.substr(begin, std::min<size_t>(all.find('\n', before.size()) - begin, 300));
  };
  ADD_FAILURE() << file << " differs first in line " << 1 + std::count(kept.begin(), in_file, '\n')
                << "\n  file: " << line_at(kept, in_file) << "\n  now:  " << line_at(text, now);
}
