// make_report_pages FOLDER: one page for each kind of document that the browser test opens.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "profiler/report/html.h"
#include "tests/profiler_ranks/ranks_fixture.h"
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
  profiler::ProfileDocument cut = documents::gpu();
  cut.kernels.resize(3);  // as a record that was reduced
  write("cut.html", cut);
  ranks::RankShape first, second;
  second.rank = 1;
  first.ops = second.ops = ranks::two_bucket_step();
  write("ranks.html", ranks::join({first, second}));
  write("empty.html", profiler::ProfileDocument{});
  return 0;
}
