// SHA-256 against answers from elsewhere: the examples of FIPS 180-4, and coreutils sha256sum where the
// padding has its corners.
#include "base/sha256.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "tests/temporary_folder.h"

namespace {

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(gpt2::sha256_text(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(gpt2::sha256_text("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(gpt2::sha256_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(gpt2::sha256_text(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PadsMessagesAroundABlockEdgeAsSha256sumDoes) {
  EXPECT_EQ(gpt2::sha256_text(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(gpt2::sha256_text(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(gpt2::sha256_text(std::string(63, 'a')), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(gpt2::sha256_text(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(Sha256, DoesNotDependOnHowTheMessageIsCut) {
  const std::string message(1000, 'x');
  for (const size_t cut : {1u, 63u, 64u, 65u, 999u}) {
    gpt2::Sha256 hash;
    hash.update(std::string_view(message).substr(0, cut));
    hash.update(std::string_view(message).substr(cut));
    EXPECT_EQ(hash.hex(), gpt2::sha256_text(message)) << cut;
  }
}

TEST(Sha256, HashesAFileLikeItsText) {
  const auto folder = fresh_test_folder(), path = folder / "text";
  const std::string text = std::string(70000, '\n') + std::string("\0\r\n", 3);  // longer than one read
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(gpt2::sha256_file(path), gpt2::sha256_text(text));
  std::filesystem::remove_all(folder);
}

TEST(Sha256, NamesAFileThatCannotBeRead) {
  try {
    gpt2::sha256_file("/nowhere/at/all");
    FAIL();
  } catch (const stepscope::InputError& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/at/all"), std::string::npos);
  }
  EXPECT_THROW(gpt2::sha256_file(std::filesystem::temp_directory_path()), stepscope::InputError);
}

}  // namespace
