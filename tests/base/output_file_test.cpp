// Outputs behind symbolic links.
#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/errors.h"
#include "base/read_file.h"
#include "base/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using stepscope::check_output;
using stepscope::read_file;
using stepscope::write_output;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

class OutputFile : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  stepscope::TemporaryFolder folder_;
};

TEST_F(OutputFile, ALinkStaysAndItsTargetIsWrittenAlsoWhereItWasNotThere) {
  fs::create_directory(at("results"));
  fs::create_symlink("results/today.csv", at("second"));
  fs::create_symlink(at("second"), at("first"));
  for (const char* content : {"new", "over what is there"}) {
    check_output(at("first"), "--csv");
    write_output(at("first"), content);
    EXPECT_EQ(read_file(at("results/today.csv")), content);
    EXPECT_TRUE(fs::is_symlink(at("first")) && fs::is_symlink(at("second")));
  }
}

TEST_F(OutputFile, ALinkIntoAFolderThatIsNotThereIsRefusedAndStays) {
  fs::create_symlink("nowhere/a.csv", at("link"));
  EXPECT_THAT([&] { check_output(at("link"), "--csv"); },
              ThrowsMessage<stepscope::InputError>(HasSubstr("nowhere/a.csv: its folder does not exist")));
  EXPECT_THROW(write_output(at("link"), "x"), stepscope::InputError);
  EXPECT_TRUE(fs::is_symlink(at("link")));
}

TEST_F(OutputFile, LinksThatLeadToEachOtherAreRefusedAndStay) {
  fs::create_symlink("b", at("a"));
  fs::create_symlink("a", at("b"));
  EXPECT_THAT([&] { check_output(at("a"), "--csv"); },
              ThrowsMessage<stepscope::InputError>(HasSubstr("/a: cannot write: Too many levels")));
  EXPECT_THROW(write_output(at("a"), "x"), stepscope::InputError);
  EXPECT_TRUE(fs::is_symlink(at("a")));
}

TEST_F(OutputFile, ANameThatIsTooLongForItsTemporaryFileIsRefusedBeforehand) {
  const std::string longest(255, 'a');
  EXPECT_THAT([&] { check_output(at(longest), "--csv"); },
              ThrowsMessage<stepscope::InputError>(AllOf(StartsWith("--csv: "), HasSubstr("File name too long"))));
  check_output(at("a"), "--csv");
  check_output("/dev/null", "--csv");
  EXPECT_TRUE(fs::is_empty(at("")));
}

TEST_F(OutputFile, AFileOfItsOwnIsReplaced) {
  write_output(at("a"), "1");
  write_output(at("a"), "2");
  EXPECT_EQ(read_file(at("a")), "2");
}

}  // namespace
