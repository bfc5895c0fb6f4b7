// `stepscope data --fetch` against a server on this machine with the faults of real ones (fetch_server.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/sha256.h"
#include "gpt2/data/token_shards.h"
#include "tests/cli/run_stepscope.h"
#include "tests/golden.h"

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr size_t kBytes = 1024 + 2 * 30000;

class FetchCli : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import http.server' 2>/dev/null && curl --version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "needs python3 and curl";
    for (const char* name : {"fineweb_val_000000.bin", "fineweb_train_000001.bin", "fineweb_train_000002.bin"}) {
      std::vector<uint16_t> tokens(30000);
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<uint16_t>((i * 7 + std::string(name).size() * 11 + name[18] * 13) % 50000);
      fs::create_directories(folder_ / "served");
      gpt2::write_token_shard(folder_ / "served" / name, tokens);
    }
    const std::string script = SOURCE_DIR "/tests/cli/fetch_server.py", served = file("served"), port = file("port");
    const std::string requests = file("requests");
    server_ = ::fork();
    if (server_ == 0) {
      ::execlp("python3", "python3", script.c_str(), served.c_str(), port.c_str(), requests.c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 200 && !fs::exists(folder_ / "port"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(fs::exists(folder_ / "port")) << "the server did not start";
    port_ = slurp(folder_ / "port");
  }
  void TearDown() override {
    if (server_ > 0) {
      ::kill(server_, SIGTERM);
      ::waitpid(server_, nullptr, 0);
    }
    fs::remove_all(folder_);
  }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string address(const std::string& fault) const { return "http://127.0.0.1:" + port_ + "/" + fault + "/"; }
  json entry(const std::string& name, bool with_hash = true) const {
    json j{{"name", name}, {"bytes", kBytes}};
    if (with_hash) j["sha256"] = gpt2::sha256_file(folder_ / "served" / name);
    return j;
  }
  // A manifest whose validation file always comes well and whose first training file has the fault.
  void manifest(const std::string& fault, bool with_hash = true) const {
    json val = entry("fineweb_val_000000.bin"), train = entry("fineweb_train_000001.bin", with_hash);
    val["url"] = address("ok") + "fineweb_val_000000.bin";
    write_manifest(
        {{"schema", "stepscope.set/1"}, {"name", "fineweb"}, {"form", "token_shards"}, {"base", address(fault)}, {"files", {val, train}}});
  }
  void write_manifest(const json& j) const { std::ofstream(file("set.json")) << j.dump(1); }
  Outcome fetch(const std::string& more = "--retries 2") const {
    return stepscope("data --fetch fineweb --from " + file("set.json") + " --out " + file("out") + " " + more);
  }
  // Everything that a pattern over the folder could find.
  std::vector<std::string> visible() const {
    std::vector<std::string> names;
    if (fs::exists(folder_ / "out"))
      for (const auto& e : fs::directory_iterator(folder_ / "out"))
        if (e.path().filename().string()[0] != '.') names.push_back(e.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  bool same(const std::string& name) const { return slurp(folder_ / "out" / name) == slurp(folder_ / "served" / name); }
  fs::path part() const { return folder_ / "out" / ".fineweb_train_000001.bin.part"; }
  // The Range headers of all requests for the training file, in order.
  std::vector<std::string> ranges() const {
    std::vector<std::string> out;
    std::istringstream in(slurp(folder_ / "requests"));
    for (std::string url, range; in >> url >> range;)
      if (url.ends_with("fineweb_train_000001.bin")) out.push_back(range);
    return out;
  }
  void expect_complete(const Outcome& o) const {
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("fineweb_train_000001.bin: 30000 tokens"));
    EXPECT_THAT(visible(), ElementsAre("fetched.json", "fineweb_train_000001.bin", "fineweb_val_000000.bin"));
    EXPECT_TRUE(same("fineweb_train_000001.bin"));
    EXPECT_TRUE(same("fineweb_val_000000.bin"));
    EXPECT_FALSE(fs::exists(part()));
  }
  void expect_only_validation() const { EXPECT_THAT(visible(), ElementsAre("fetched.json", "fineweb_val_000000.bin")); }

  fs::path folder_ = fresh_folder();
  std::string port_;
  pid_t server_ = -1;
};

// All that a fetch and a second one print. Files come in any order.
TEST_F(FetchCli, what_it_prints) {
  const auto lines = [&](const Outcome& o) {
    std::vector<std::string> sorted;
    std::istringstream in(o.err);
    for (std::string line; std::getline(in, line);) sorted.push_back(line);
    std::sort(sorted.begin(), sorted.end());
    std::string text = o.out + "# stderr\n";
    for (const std::string& line : sorted) text += line + "\n";
    for (const auto& [words, name] : {std::pair(folder_.string(), "FOLDER"), std::pair("127.0.0.1:" + port_, "SERVER")})
      for (size_t at; (at = text.find(words)) != std::string::npos;) text.replace(at, words.size(), name);
    return text;
  };
  manifest("ok", false);
  std::string text = "$ data --fetch fineweb\n" + lines(fetch());
  text += "$ data --fetch fineweb, again\n" + lines(fetch());
  expect_golden("cli/data/fetch.txt", text);
}

TEST_F(FetchCli, whole_files_come_and_are_recorded) {
  manifest("ok");
  const Outcome o = fetch();
  expect_complete(o);
  const json record = json::parse(slurp(folder_ / "out" / "fetched.json"));
  EXPECT_EQ(record.at("fineweb_train_000001.bin").at("bytes"), kBytes);
  EXPECT_EQ(record.at("fineweb_train_000001.bin").at("sha256"), gpt2::sha256_file(folder_ / "served" / "fineweb_train_000001.bin"));
  EXPECT_THAT(ranges(), ElementsAre("-"));
}

// Its disk may be the one that the files fill. Nothing was fetched, or, where it filled meanwhile, an exception beside the fetching threads
// was an abort.
TEST_F(FetchCli, a_stderr_that_takes_nothing_ends_no_fetch) {
  manifest("ok", false);
  expect_complete(stepscope("data --fetch fineweb --from " + file("set.json") + " --out " + file("out"),
                            "CUDA_VISIBLE_DEVICES= sh -c '\"$@\" 2>/dev/full' sh"));
}

TEST_F(FetchCli, what_is_there_is_not_fetched_again) {
  manifest("ok");
  fetch();
  expect_complete(fetch());
  EXPECT_EQ(ranges().size(), 1u);
  // Put there by hand, without a record.
  fs::remove(folder_ / "out" / "fetched.json");
  expect_complete(fetch());
  EXPECT_EQ(ranges().size(), 1u);
}

TEST_F(FetchCli, a_changed_file_that_is_there_is_refused_and_left_alone) {
  manifest("ok");
  fetch();
  {
    std::fstream f(folder_ / "out" / "fineweb_train_000001.bin", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(5000);
    f.put('x');
  }
  const std::string changed = slurp(folder_ / "out" / "fineweb_train_000001.bin");
  const Outcome o = fetch();
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("fineweb_train_000001.bin"), HasSubstr("sha256"), HasSubstr("remove it")));
  EXPECT_EQ(slurp(folder_ / "out" / "fineweb_train_000001.bin"), changed);
}

TEST_F(FetchCli, a_cut_transfer_is_continued_where_it_stopped) {
  manifest("cut");
  const Outcome o = fetch();
  expect_complete(o);
  EXPECT_THAT(ranges(), ElementsAre("-", "bytes=" + std::to_string(kBytes / 2) + "-"));
  EXPECT_THAT(o.err, HasSubstr("trying again"));
}

TEST_F(FetchCli, a_later_run_continues_what_an_earlier_one_left) {
  manifest("cut-twice");
  const Outcome o = fetch("--retries 0");
  EXPECT_EQ(o.exit_code, 3) << o.err;
  expect_only_validation();
  EXPECT_EQ(fs::file_size(part()), kBytes / 2);
  expect_complete(fetch("--retries 1"));
  EXPECT_EQ(ranges().at(1), "bytes=" + std::to_string(kBytes / 2) + "-");
}

TEST_F(FetchCli, a_server_without_ranges_sends_the_whole_file_again) {
  manifest("no-ranges");
  expect_complete(fetch("--retries 3"));
  EXPECT_EQ(ranges().back(), "-");
}

TEST_F(FetchCli, server_errors_are_tried_again) {
  manifest("sometimes");
  expect_complete(fetch());
  EXPECT_EQ(ranges().size(), 3u);
}

TEST_F(FetchCli, too_many_requests_is_tried_again) {
  manifest("busy");
  expect_complete(fetch("--retries 1"));
}

TEST_F(FetchCli, a_broken_server_is_given_up) {
  manifest("broken");
  const Outcome o = fetch("--retries 1");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("HTTP 500"), HasSubstr("given up after 2 tries. "),
                    HasSubstr("\n  " + address("broken") + "fineweb_train_000001.bin  to  " + file("out/fineweb_train_000001.bin\n"))));
  EXPECT_EQ(ranges().size(), 2u);
  expect_only_validation();
}

// It named the file that failed first, and of each further one the next run did.
TEST_F(FetchCli, without_a_network_every_file_is_named_with_its_place) {
  const std::string nobody = "http://127.0.0.1:1/set";
  const Outcome o = stepscope("data --fetch fineweb --shards 2 --retries 0 --from " + nobody + " --out " + file("out"));
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.err, HasSubstr("given up after one try. What came so far is kept"));
  for (const char* name : {"fineweb_val_000000.bin", "fineweb_train_000001.bin", "fineweb_train_000002.bin"})
    EXPECT_THAT(o.err, HasSubstr("\n  " + nobody + "/" + name + "  to  " + file("out/") + name + "\n"));
}

TEST_F(FetchCli, a_missing_file_is_not_tried_again) {
  manifest("missing");
  const Outcome o = fetch();
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, AllOf(HasSubstr("HTTP 404"), HasSubstr("by hand")));
  EXPECT_EQ(ranges().size(), 1u);
  expect_only_validation();
}

// It left the folder with a lock in it.
TEST_F(FetchCli, a_fetch_that_brings_nothing_leaves_no_folder) {
  const auto fetch_missing = [&](const std::string& folder) {
    return stepscope("data --fetch fineweb --from " + address("missing") + " --retries 0 --out " + file(folder));
  };
  EXPECT_EQ(fetch_missing("new/out").exit_code, 3);
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  fs::create_directories(folder_ / "mine");
  EXPECT_EQ(fetch_missing("mine").exit_code, 3);
  EXPECT_TRUE(fs::is_empty(folder_ / "mine"));
  // A part that the next run continues keeps its folder.
  manifest("cut-twice");
  fs::create_directories(folder_ / "out");
  EXPECT_EQ(fetch("--retries 0").exit_code, 3);
  EXPECT_TRUE(fs::exists(part()));
}

TEST_F(FetchCli, wrong_content_is_fetched_once_more_and_then_refused) {
  for (const char* fault : {"other", "longer", "shorter"}) {
    SCOPED_TRACE(fault);
    fs::remove_all(folder_ / "out");
    fs::remove(folder_ / "requests");
    manifest(fault);
    const Outcome o = fetch();
    if (std::string(fault) == "shorter") {
      EXPECT_EQ(o.exit_code, 3) << o.err;  // cannot be told from a cut transfer
      EXPECT_THAT(o.err, HasSubstr("fineweb_train_000001.bin"));
    } else {
      EXPECT_EQ(o.exit_code, 2) << o.err;
      EXPECT_THAT(o.err, AllOf(HasSubstr("sha256"), HasSubstr("expected"), HasSubstr("not kept")));
      EXPECT_FALSE(fs::exists(part()));
    }
    expect_only_validation();
  }
}

TEST_F(FetchCli, a_part_of_another_version_is_thrown_away) {
  manifest("ok");
  fs::create_directories(folder_ / "out");
  std::ofstream(part(), std::ios::binary) << std::string(5000, 'z');
  const Outcome o = fetch();
  expect_complete(o);
  EXPECT_THAT(ranges(), ElementsAre("bytes=5000-", "-"));
  // A part longer than the file cannot be one.
  fs::remove_all(folder_ / "out");
  fs::create_directories(folder_ / "out");
  std::ofstream(part(), std::ios::binary) << std::string(kBytes + 1, 'z');
  expect_complete(fetch());
  EXPECT_EQ(ranges().back(), "-");
}

TEST_F(FetchCli, once_wrong_and_then_right) {
  manifest("once-other");
  expect_complete(fetch());
}

TEST_F(FetchCli, without_a_published_hash_the_first_download_counts) {
  manifest("ok", false);
  const Outcome o = fetch();
  expect_complete(o);
  EXPECT_THAT(o.err, AllOf(HasSubstr("recorded"), HasSubstr("1 of 2 files have no published SHA-256")));
  fs::remove(folder_ / "out" / "fineweb_train_000001.bin");
  manifest("other", false);
  const Outcome again = fetch();
  EXPECT_EQ(again.exit_code, 2) << again.err;
  EXPECT_THAT(again.err, HasSubstr(gpt2::sha256_file(folder_ / "served" / "fineweb_train_000001.bin")));
  expect_only_validation();
}

TEST_F(FetchCli, without_size_and_hash_the_form_is_checked) {
  json train{{"name", "fineweb_train_000001.bin"}};
  write_manifest(
      {{"schema", "stepscope.set/1"}, {"name", "fineweb"}, {"form", "token_shards"}, {"base", address("page")}, {"files", {train}}});
  const Outcome o = fetch();
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("page/fineweb_train_000001.bin"));
  EXPECT_THAT(visible(), testing::IsEmpty());
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(FetchCli, shards_limit_what_is_fetched) {
  write_manifest({{"schema", "stepscope.set/1"},
                  {"name", "fineweb"},
                  {"form", "token_shards"},
                  {"base", address("ok")},
                  {"files", {entry("fineweb_val_000000.bin"), entry("fineweb_train_000001.bin"), entry("fineweb_train_000002.bin")}}});
  EXPECT_EQ(fetch().exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "out" / "fineweb_train_000002.bin"));
  EXPECT_EQ(fetch("--shards 2 --jobs 3").exit_code, 0);
  EXPECT_TRUE(same("fineweb_train_000002.bin"));
  const Outcome o = fetch("--shards 3");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--shards 3: fineweb has 2 files for training"));
}

TEST_F(FetchCli, a_mirror_holds_the_files_of_the_built_in_manifest) {
  // The real first shard is another file, so the mirror's is refused by the manifest that is built in.
  const Outcome o = stepscope("data --fetch fineweb --from " + address("ok") + " --retries 1 --out " + file("out"));
  EXPECT_NE(o.exit_code, 0);
  EXPECT_THAT(slurp(folder_ / "requests"), HasSubstr("/ok/fineweb_"));
  EXPECT_THAT(visible(), Not(testing::Contains(HasSubstr(".bin"))));
}

TEST(FetchSets, fineweb_has_a_hash_for_every_file_and_as_many_tokens_as_its_readers_count) {
  const json j = json::parse(slurp(SOURCE_DIR "/gpt2/prepare/sets/fineweb.json"));
  std::set<std::string> hashes;
  uint64_t training_tokens = 0;
  for (const json& file : j.at("files")) {
    hashes.insert(file.at("sha256").get<std::string>());
    if (file.at("name").get<std::string>().find("_train_") != std::string::npos)
      training_tokens += (file.at("bytes").get<uint64_t>() - 1024) / 2;
  }
  EXPECT_EQ(hashes.size(), 104u);
  // The count that CalculatedContent/rg_optimizers gives beside its manifest (baseline/gpt2_small/speedrun30/README.md).
  EXPECT_EQ(training_tokens, 10'255'324'043u);
}

TEST_F(FetchCli, a_set_of_ones_own_is_fetched_by_the_name_of_its_manifest) {
  std::string base = address("ok");
  base.pop_back();  // as most people write an address
  const json mine{{"schema", "stepscope.set/1"},
                  {"name", "mine"},
                  {"form", "token_shards"},
                  {"base", base},
                  {"files", {entry("fineweb_val_000000.bin")}}};
  write_manifest(mine);
  const std::string from = " --from " + file("set.json") + " --retries 0 --out " + file("out");
  const Outcome o = stepscope("data --fetch mine" + from);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(visible(), ElementsAre("fetched.json", "fineweb_val_000000.bin"));
  EXPECT_TRUE(same("fineweb_val_000000.bin"));
  EXPECT_THAT(o.err, Not(HasSubstr("for training"))) << "no file of it is named so";
  const Outcome other = stepscope("data --fetch other" + from);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("the manifest of mine, expected one of other"));
  const Outcome shards = stepscope("data --fetch mine --shards 2" + from);
  EXPECT_EQ(shards.exit_code, 2);
  EXPECT_THAT(shards.err, HasSubstr("--shards 2: mine has 0 files for training"));
}

TEST_F(FetchCli, an_address_that_is_none_is_not_tried_again) {
  json j{{"schema", "stepscope.set/1"},
         {"name", "fineweb"},
         {"form", "token_shards"},
         {"base", "http://127.0.0.1:port/"},
         {"files", {entry("fineweb_train_000001.bin")}}};
  write_manifest(j);
  const Outcome o = fetch("--retries 3");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, AllOf(HasSubstr("http://127.0.0.1:port/fineweb_train_000001.bin: curl exit 3"), Not(HasSubstr("trying again"))));
}

TEST_F(FetchCli, bad_manifests_name_the_member) {
  const json good{{"schema", "stepscope.set/1"},
                  {"name", "fineweb"},
                  {"form", "token_shards"},
                  {"base", "http://x/"},
                  {"files", {entry("fineweb_train_000001.bin")}}};
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& why) {
    json j = good;
    j[json::json_pointer(pointer)] = value;
    write_manifest(j);
    const Outcome o = fetch();
    EXPECT_EQ(o.exit_code, 2) << pointer;
    EXPECT_THAT(o.err, AllOf(HasSubstr("set.json"), HasSubstr(why)));
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  };
  refused("/schema", "other", "\"schema\": \"stepscope.set/1\"");
  refused("/name", "tinystories", "the manifest of tinystories");
  refused("/form", "tar", "form \"tar\"");
  refused("/base", "ftp://x/", "begins with https://");
  refused("/files", json::array(), "no \"files\"");
  refused("/files/0/name", "../x", "plain file name");
  refused("/files/0/name", ".x", "plain file name");
  refused("/files/0/name", "fetched.json", "plain file name");
  refused("/files/0/bytes", -1, "files[0].bytes");
  refused("/files/0/sha256", "ABC", "files[0].sha256");
  refused("/files/1", good["files"][0], "stands there twice");
  std::ofstream(file("set.json")) << "{";
  EXPECT_EQ(fetch().exit_code, 2);
}

TEST_F(FetchCli, without_curl_the_package_is_named) {
  manifest("ok");
  fs::create_directories(folder_ / "empty");
  const Outcome o =
      stepscope("data --fetch fineweb --from " + file("set.json") + " --out " + file("out"), "CUDA_VISIBLE_DEVICES= PATH=" + file("empty"));
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.err, HasSubstr("package curl"));
}

}  // namespace
