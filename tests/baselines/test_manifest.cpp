// Manifests against tampering. The last test is the one that CI relies on: the baselines that we ship are as
// they were frozen.
#include "experiments/baseline/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/errors.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::ThrowsMessage;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A small frozen baseline "toy" in a tree of its own.
class FrozenBaseline : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fresh_test_folder();
    folder_ = root_ / "baselines" / "toy";
    write(folder_ / "CMakeLists.txt", "# toy\nset(BASELINE_BUILD_FLAGS -O3 -lineinfo)\n");
    write(folder_ / "README.md", "# toy\n\nA toy that\ntrains nothing.\n\nMore.\n");
    write(folder_ / "main.cu", "int main() { return 0; }\n");
    write(folder_ / "kernels" / "add.cuh", "// adds\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  experiments::Manifest freeze() { return experiments::freeze_baseline(folder_, {"2026-01-02", "abcdef", ""}); }
  std::vector<std::string> problems() { return experiments::verify_baseline(folder_); }
  // Rewrites the manifest after `change` has had its way with it.
  template <typename Change>
  void forge(Change change) {
    auto j = nlohmann::ordered_json::parse(read(folder_ / experiments::kManifestFile));
    change(j);
    write(folder_ / experiments::kManifestFile, j.dump(2));
  }

  fs::path root_, folder_;
};

TEST_F(FrozenBaseline, VerifiesWhenNothingChanged) {
  const experiments::Manifest m = freeze();
  EXPECT_EQ(m.name, "toy");
  EXPECT_EQ(m.build_flags, "-O3 -lineinfo");
  EXPECT_EQ(m.description, "A toy that trains nothing.");
  ASSERT_EQ(m.files.size(), 4u);  // not the manifest itself
  EXPECT_THAT(problems(), IsEmpty());
  const experiments::Manifest again = experiments::read_manifest(folder_);
  EXPECT_EQ(experiments::to_json(again), experiments::to_json(m));
}

TEST_F(FrozenBaseline, NamesTheFileInWhichOneByteChanged) {
  freeze();
  std::string text = read(folder_ / "kernels" / "add.cuh");
  text[3] = 'A';
  write(folder_ / "kernels" / "add.cuh", text);
  EXPECT_THAT(problems(), ElementsAre(StartsWith("kernels/add.cuh: changed")));
}

TEST_F(FrozenBaseline, NamesAnExtraFile) {
  freeze();
  write(folder_ / "kernels" / "faster.cuh", "");
  EXPECT_THAT(problems(), ElementsAre(StartsWith("kernels/faster.cuh: extra")));
}

TEST_F(FrozenBaseline, NamesAHiddenExtraFile) {
  freeze();
  write(folder_ / ".flags", "-use_fast_math");
  EXPECT_THAT(problems(), ElementsAre(StartsWith(".flags: extra")));
}

TEST_F(FrozenBaseline, NamesAMissingFile) {
  freeze();
  fs::remove(folder_ / "main.cu");
  EXPECT_THAT(problems(), ElementsAre(StartsWith("main.cu: missing")));
}

TEST_F(FrozenBaseline, IsNotFooledByAManifestThatOmitsTheFile) {
  freeze();
  write(folder_ / "main.cu", "int main() { return 1; }\n");
  forge([](auto& j) {
    auto& files = j["files"];
    for (auto it = files.begin(); it != files.end(); ++it) {
      if ((*it)["path"] == "main.cu") {
        files.erase(it);
        break;
      }
    }
  });
  EXPECT_THAT(problems(), ElementsAre(StartsWith("main.cu: extra")));
}

TEST_F(FrozenBaseline, IsNotFooledByALinkToAnEqualFile) {
  freeze();
  fs::rename(folder_ / "main.cu", root_ / "elsewhere.cu");
  fs::create_symlink(root_ / "elsewhere.cu", folder_ / "main.cu");
  EXPECT_THAT(problems(), ElementsAre(StartsWith("main.cu: not a regular file")));
}

TEST_F(FrozenBaseline, RefusesTheManifestOfAnotherBaseline) {
  freeze();
  forge([](auto& j) { j["name"] = "other"; });
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("\"other\"")));
}

TEST_F(FrozenBaseline, ReportsAManifestThatIsMissingOrBroken) {
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("missing")));
  freeze();
  const std::string good = read(folder_ / experiments::kManifestFile);
  write(folder_ / experiments::kManifestFile, good.substr(0, good.size() / 2));
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("the file ends within the JSON")));
  const auto broken = [&](auto change, const char* says) {
    write(folder_ / experiments::kManifestFile, good);
    forge(change);
    EXPECT_THAT(problems(), ElementsAre(HasSubstr(says)));
  };
  broken([](auto& j) { j["schema"] = "stepscope.baseline/2"; }, "stepscope.baseline/2");
  broken([](auto& j) { j.erase("description"); }, "description");
  broken([](auto& j) { j["files"] = nlohmann::json::array(); }, "files");
  broken([](auto& j) { j["files"][0]["path"] = "../../etc/passwd"; }, "leaves the folder");
  broken([](auto& j) { j["files"][0]["path"] = "/etc/passwd"; }, "leaves the folder");
  broken([](auto& j) { j["files"][1] = j["files"][0]; }, "twice");
  broken([](auto& j) { j["files"][0]["sha256"] = ""; }, "hash");
  broken([](auto& j) { j["files"][0]["size_bytes"] = -1; }, "size_bytes");
  broken([](auto& j) { j["files"][0]["size_bytes"] = 1; }, "the manifest says 1");
}

TEST_F(FrozenBaseline, IsNeverFrozenTwice) {
  freeze();
  const std::string before = read(folder_ / experiments::kManifestFile);
  write(folder_ / "main.cu", "edited");
  EXPECT_THROW(freeze(), stepscope::InputError);
  EXPECT_EQ(read(folder_ / experiments::kManifestFile), before);
}

TEST_F(FrozenBaseline, IsNotMadeOfAFolderWithoutBuildFlags) {
  write(folder_ / "CMakeLists.txt", "add_executable(toy main.cu)\n");
  EXPECT_THROW(freeze(), stepscope::InputError);
  EXPECT_FALSE(fs::exists(folder_ / experiments::kManifestFile));
}

// nlohmann's own exception ended the command with 1, "changed".
TEST_F(FrozenBaseline, IsNotMadeOfNamesAndWordsThatAreNoUtf8) {
  EXPECT_THAT(
      [&] {
        experiments::freeze_baseline(folder_, {"2026-01-02", "abcdef", "a \xff"});
      },
      ThrowsMessage<stepscope::InputError>(HasSubstr("toy: its description is no UTF-8")));
  write(folder_ / "kernels" / "a\xff.cuh", "");
  EXPECT_THAT([&] { freeze(); }, ThrowsMessage<stepscope::InputError>(HasSubstr("a\xff.cuh: its name is no UTF-8")));
  EXPECT_FALSE(fs::exists(folder_ / experiments::kManifestFile));
}

TEST_F(FrozenBaseline, IsFoundByItsNameOnly) {
  EXPECT_THAT(experiments::baseline_names(root_), ElementsAre("toy"));
  EXPECT_EQ(experiments::baseline_folder(root_, "toy"), folder_);
  for (const char* name : {"tox", "", "..", "toy/kernels", "../baselines/toy"}) {
    EXPECT_THROW(experiments::baseline_folder(root_, name), stepscope::InputError) << name;
  }
  try {
    experiments::baseline_folder(root_, "tox");
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("toy"));
  }
}

TEST(ShippedBaselines, AreAsTheyWereFrozen) {
  const std::vector<std::string> names = experiments::baseline_names(SOURCE_DIR);
  EXPECT_THAT(names, testing::Contains("fp32-v1"));
  for (const std::string& name : names) {
    EXPECT_THAT(experiments::verify_baseline(fs::path(SOURCE_DIR) / "baselines" / name), IsEmpty()) << name;
  }
}

}  // namespace
