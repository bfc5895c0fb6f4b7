// The program of an arm with other sources, with a small CMake project in the place of stepscope.
#include "experiments/session/built_program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/errors.h"
#include "base/read_file.h"
#include "experiments/runner/arm.h"
#include "experiments/session/child_output.h"
#include "tests/temporary_folder.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class BuiltPrograms : public ::testing::Test {
 protected:
  // A tree in git, and its build in a folder of the tree that git ignores, as the launcher makes it.
  void SetUp() override {
    write("CMakeLists.txt",
          "cmake_minimum_required(VERSION 3.24)\nproject(small LANGUAGES CXX)\nset(STEPSCOPE_WORD none CACHE STRING \"\")\n"
          "set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)\nadd_executable(stepscope main.cpp other.cpp)\n"
          "target_compile_definitions(stepscope PRIVATE WORD=\"${STEPSCOPE_WORD}\")\n");
    write("main.cpp", "#include <cstdio>\nconst char* other();\nint main() { std::printf(\"first %s %s\\n\", other(), WORD); }\n");
    write("other.cpp", "const char* other() { return \"other\"; }\n");
    write(".gitignore", "/build/\n");
    run({"git", "init", "-q"});
    commit();
    run({"cmake", "-G", "Ninja", "-S", ".", "-B", "build/release", "-DSTEPSCOPE_WORD=mine"});
    options_.root = folder_;
    options_.program = folder_ / "build/release/bin/stepscope";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& file, const std::string& text) const { std::ofstream(folder_ / file) << text; }
  void run(const std::vector<std::string>& argv) const {
    std::vector<std::string> inside{"env", "-C", folder_.string()};
    inside.insert(inside.end(), argv.begin(), argv.end());
    const ChildOutput out = run_to_end(inside, 60, nullptr, true);
    ASSERT_EQ(out.ending.code, 0) << out.text;
  }
  void commit() const {
    run({"git", "add", "-A"});
    run({"git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"});
  }
  // As `git diff` writes it: a patch that replaces the line of other.cpp.
  fs::path patch(const std::string& from, const std::string& to, const std::string& folder = "") const {
    const fs::path file = folder_ / folder / "faster.patch";
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "diff --git a/other.cpp b/other.cpp\n--- a/other.cpp\n+++ b/other.cpp\n@@ -1 +1 @@\n-" << from << "\n+" << to
                        << "\n";
    return file;
  }
  static std::string says(const BuiltProgram& built) { return run_to_end({built.program.string()}, 60, nullptr, false).text; }
  // Where faster.patch is built.
  fs::path arm() const { return folder_ / "build/release/arms" / arm_folder({folder_ / "faster.patch", {}}); }
  std::string error_of(const Sources& sources) const {
    try {
      build_program(options_, sources);
    } catch (const stepscope::InputError& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_ = fresh_test_folder();
  BuildOptions options_;
  const std::string kOther = "const char* other() { return \"other\"; }";
};

TEST_F(BuiltPrograms, have_the_patch_the_tree_as_it_stands_and_the_flags_of_the_program_here) {
  write("main.cpp", "#include <cstdio>\nconst char* other();\nint main() { std::printf(\"edited %s %s\\n\", other(), WORD); }\n");
  const BuiltProgram built = build_program(options_, {patch(kOther, "const char* other() { return \"patched\"; }"), {}});
  EXPECT_EQ(says(built), "edited patched mine\n");
  EXPECT_EQ(built.commit, "");
  EXPECT_EQ(stepscope::read_file(folder_ / "other.cpp"), kOther + "\n") << "the tree itself must stay as it is";
  EXPECT_FALSE(fs::exists(built.root / "build"));
}

// An archive of a release, or the copy of a tree on a lent machine.
TEST_F(BuiltPrograms, with_a_patch_need_no_repository) {
  fs::remove_all(folder_ / ".git");
  const BuiltProgram built = build_program(options_, {patch(kOther, "const char* other() { return \"patched\"; }"), {}});
  EXPECT_EQ(says(built), "first patched mine\n");
  EXPECT_EQ(built.notice, "");
  EXPECT_FALSE(fs::exists(built.root / "build"));
  EXPECT_THAT(error_of({{}, "HEAD"}), HasSubstr("no such revision"));
}

// As where the tree has another owner; an ignored header, say, was compiled in without a word.
TEST_F(BuiltPrograms, with_a_patch_say_that_git_does_not_take_the_repository_there) {
  write(".git/HEAD", "damaged");
  options_.check = [](const fs::path&) { throw stepscope::InputError("seen"); };
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of({patch(kOther, kOther), {}}), "seen");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("git does not take the repository there (fatal: "), HasSubstr("files that git ignores too")));
}

TEST_F(BuiltPrograms, compile_again_only_what_differs) {
  const Sources sources{patch(kOther, "const char* other() { return \"patched\"; }"), {}};
  const fs::path objects = build_program(options_, sources).program.parent_path().parent_path() / "CMakeFiles/stepscope.dir";
  const auto main_before = fs::last_write_time(objects / "main.cpp.o"), other_before = fs::last_write_time(objects / "other.cpp.o");
  patch(kOther, "const char* other() { return \"again\"; }");
  EXPECT_EQ(says(build_program(options_, sources)), "first again mine\n");
  EXPECT_EQ(fs::last_write_time(objects / "main.cpp.o"), main_before);
  EXPECT_GT(fs::last_write_time(objects / "other.cpp.o"), other_before);
}

// The second was built over the first before either was measured, and the page of each named its own patch.
TEST_F(BuiltPrograms, of_two_patches_with_one_file_name_lie_apart) {
  std::vector<fs::path> trees;
  options_.check = [&](const fs::path& tree) {
    trees.push_back(tree);
    throw stepscope::InputError("not compiled");
  };
  for (const char* word : {"one", "two"})
    error_of({patch(kOther, fmt::format("const char* other() {{ return \"{}\"; }}", word), word), {}});
  ASSERT_EQ(trees.size(), 2u);
  EXPECT_THAT(stepscope::read_file(trees[0] / "other.cpp"), HasSubstr("one"));
  EXPECT_THAT(stepscope::read_file(trees[1] / "other.cpp"), HasSubstr("two"));
  EXPECT_EQ(arm_folder({folder_ / "one/faster.patch", {}}), arm_folder({folder_ / "two/../one/./faster.patch", {}}));
}

// A second `since` of another revision built over the arm that the first was measuring.
TEST_F(BuiltPrograms, that_are_measured_are_not_built_over) {
  run({"git", "tag", "before"});
  write("other.cpp", "const char* other() { return \"newer\"; }\n");
  commit();
  {
    const BuiltProgram measured = build_program(options_, {{}, "before"});
    EXPECT_THAT(
        [&] {
          build_program(options_, {{}, "HEAD"});
        },
        ThrowsMessage<stepscope::MachineError>(HasSubstr("arms/revision: another command builds an arm there, or measures it")));
    EXPECT_EQ(says(measured), "first other mine\n");
    EXPECT_EQ(stepscope::read_file(measured.root / "other.cpp"), kOther + "\n");
  }
  options_.check = [](const fs::path&) { throw stepscope::InputError("free again"); };
  EXPECT_EQ(error_of({{}, "HEAD"}), "free again");
}

TEST_F(BuiltPrograms, of_a_revision_have_its_sources_also_where_they_are_older_than_the_objects) {
  run({"git", "tag", "before"});
  write("other.cpp", "const char* other() { return \"newer\"; }\n");
  commit();
  EXPECT_EQ(says(build_program(options_, {{}, "HEAD"})), "first newer mine\n");
  const BuiltProgram built = build_program(options_, {{}, "before"});
  EXPECT_EQ(says(built), "first other mine\n");
  EXPECT_EQ(built.commit.size(), 40u);
}

// "since main" compared what others had merged into main too, and called a tree slower for it.
TEST_F(BuiltPrograms, of_a_revision_that_head_does_not_contain_say_where_the_two_part) {
  run({"git", "tag", "base"});
  run({"git", "checkout", "-q", "-b", "others"});
  write("other.cpp", "const char* other() { return \"others\"; }\n");
  commit();
  run({"git", "checkout", "-q", "base"});
  write("main.cpp", "#include <cstdio>\nconst char* other();\nint main() { std::printf(\"mine %s %s\\n\", other(), WORD); }\n");
  commit();
  EXPECT_EQ(says(build_program(options_, {{}, "others"})), "first others mine\n");
  const auto notice_of = [&](const char* revision) { return build_program(options_, {{}, revision}).notice; };
  const std::string base = run_to_end({"git", "-C", folder_.string(), "rev-parse", "base"}, 60, nullptr, false).text.substr(0, 12);
  EXPECT_EQ(
      notice_of("others"),
      "others is not in the history of HEAD, so the verdict is of its own changes too; the changes of this tree alone are those since " +
          base);
  EXPECT_EQ(notice_of("base"), "");
  EXPECT_EQ(notice_of("HEAD"), "");
}

// "no such revision" was all that one read of a tree of another owner.
TEST_F(BuiltPrograms, of_a_revision_that_git_does_not_look_up_say_why) {
  // Without the settings of this machine, which may call every folder safe.
  const std::map<std::string, const char*> environment{
      {"GIT_TEST_ASSUME_DIFFERENT_OWNER", "1"}, {"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
  for (const auto& [name, value] : environment) setenv(name.c_str(), value, 1);
  const std::string error = error_of({{}, "HEAD"});
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  EXPECT_THAT(error, HasSubstr("git knows no such revision in " + folder_.string() + ": fatal: "));
  EXPECT_THAT(error_of({{}, "no-such"}), ::testing::EndsWith("git knows no such revision in " + folder_.string()));
}

TEST_F(BuiltPrograms, are_refused_with_the_reason) {
  EXPECT_THAT(error_of({patch("something else", "x"), {}}), AllOf(HasSubstr("faster.patch does not apply to"), HasSubstr("other.cpp")));
  EXPECT_THAT(error_of({patch(kOther, "const char* other() { return 1 +; }"), {}}),
              AllOf(HasSubstr("faster.patch does not build"), HasSubstr("error:"), HasSubstr("build.log")));
  EXPECT_THAT(stepscope::read_file(arm() / "build.log"), AllOf(HasSubstr("return 1 +;"), HasSubstr("ninja: build stopped")));
  EXPECT_THAT(error_of({{}, "no-such"}), AllOf(HasSubstr("'no-such'"), HasSubstr("no such revision")));
  EXPECT_THAT(error_of({{}, "--all"}), HasSubstr("no such revision"));
  options_.program = folder_ / "elsewhere/bin/stepscope";
  EXPECT_THROW(build_program(options_, {{}, "HEAD"}), stepscope::MachineError);
}

TEST_F(BuiltPrograms, are_not_compiled_where_the_check_of_their_tree_throws) {
  options_.check = [](const fs::path& tree) {
    EXPECT_THAT(stepscope::read_file(tree / "other.cpp"), HasSubstr("patched"));
    throw stepscope::InputError("not worth it");
  };
  EXPECT_EQ(error_of({patch(kOther, "const char* other() { return \"patched\"; }"), {}}), "not worth it");
  EXPECT_FALSE(fs::exists(arm() / "build"));
}

TEST_F(BuiltPrograms, are_not_built_any_further_after_an_interrupt) {
  const std::atomic<bool> stop = true;
  options_.stop = &stop;
  EXPECT_THROW(build_program(options_, {{}, "HEAD"}), Interrupted);
}

TEST_F(BuiltPrograms, whether_a_patch_applies_is_known_without_a_build) {
  EXPECT_EQ(why_not_applicable(folder_, patch(kOther, "x")), "");
  EXPECT_THAT(why_not_applicable(folder_, patch("something else", "x")), HasSubstr("other.cpp"));
}

// A patch that an experiment measures, or with which a try was measured, must not rot: a change of the tree that it touches renews it.
TEST(ExperimentPatches, of_studies_and_prototypes_apply_to_this_tree) {
  const fs::path root = SOURCE_DIR;
  if (!fs::exists(root / ".git")) GTEST_SKIP() << "no git repository";
  for (const char* folder : {"experiments/studies", "experiments/prototypes"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".patch") {
        EXPECT_EQ(why_not_applicable(root, entry.path()), "") << entry.path();
      }
}

}  // namespace
}  // namespace experiments
