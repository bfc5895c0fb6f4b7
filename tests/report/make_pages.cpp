// make_report_pages FOLDER: one page for each kind of document that the browser test opens.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "profiler/report/html.h"
#include "tests/report/documents.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_report_pages FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const profiler::ProfileDocument& d) {
    std::ofstream(folder / name, std::ios::binary) << profiler::html_text(d);
  };
  write("gpu.html", documents::gpu());
  write("cpu.html", documents::cpu());
  write("hostile.html", documents::hostile());
  write("long.html", documents::with_launches(20000));
  write("empty.html", profiler::ProfileDocument{});
  return 0;
}
