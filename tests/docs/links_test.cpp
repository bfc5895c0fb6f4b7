// Every relative link of a Markdown page leads to a file of the tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace {

namespace fs = std::filesystem;

TEST(links, of_readme_docs_and_studies_lead_somewhere) {
  const fs::path root = SOURCE_DIR;
  std::vector<fs::path> pages{root / "README.md", root / "tests" / "README.md"};
  for (const char* folder : {"docs", "experiments/studies"})
    for (const auto& e : fs::recursive_directory_iterator(root / folder))
      if (e.path().extension() == ".md") pages.push_back(e.path());
  const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  int links = 0;
  for (const fs::path& page : pages) {
    std::ifstream in(page);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (auto it = std::sregex_iterator(text.begin(), text.end(), link); it != std::sregex_iterator(); ++it) {
      const std::string to = (*it)[1];
      if (to.find("://") != std::string::npos) continue;
      ++links;
      EXPECT_TRUE(fs::exists(page.parent_path() / to)) << page << " links to " << to;
    }
  }
  EXPECT_GT(links, 20);
}

}  // namespace
