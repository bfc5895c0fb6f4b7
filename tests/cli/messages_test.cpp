// What a newcomer's mistakes are answered with, and that no answer is lost on its way to stdout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/page_or_package.h"
#include "tests/cli/run_stepscope.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kDocument = SOURCE_DIR "/tests/profiler/data/cpu.profile.json";

int exit_code_with(const std::string& arguments, const std::string& redirection) {
  const int status = std::system(("CUDA_VISIBLE_DEVICES= " + stepscope_program() + " " + arguments + " " + redirection).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Stdout, ADiskThatIsFullBehindItIsAnError) {
  const auto folder = fresh_folder();
  const std::string err = (folder / "err").string();
  for (const std::string& arguments : {"report " + kDocument, std::string("train --help"), std::string("baseline list"),
                                       std::string("experiment list"),  // more than the stream's buffer holds
                                       std::string("train --trainer reference --model tiny --steps 1 -b 1 -t 8")}) {
    EXPECT_EQ(exit_code_with(arguments, ">/dev/full 2>" + err), 2) << arguments;
    EXPECT_THAT(slurp(err), HasSubstr("stepscope: cannot write stdout: ")) << arguments;
  }
  std::filesystem::remove_all(folder);
}

TEST(Stderr, ADiskThatIsFullBehindItIsNoAbort) {
  for (const std::string& arguments :
       {std::string("report /no/such/file"), std::string("train --trainer reference --model tiny --steps 1 -b 1 -t 8")})
    EXPECT_EQ(exit_code_with(arguments, ">/dev/null 2>/dev/full"), 2) << arguments;
  EXPECT_EQ(exit_code_with("report " + kDocument, ">/dev/full 2>/dev/full"), 2);
  // Which files were written is said in a destructor, which ended the program by signal 6.
  const auto folder = fresh_folder();
  EXPECT_EQ(exit_code_with("report " + kDocument + " --csv " + (folder / "rows.csv").string(), ">/dev/null 2>/dev/full"), 0);
  EXPECT_GT(slurp(folder / "rows.csv").size(), 0u);
  std::filesystem::remove_all(folder);
}

// The first file that a program opens takes the number of the stream that is closed.
TEST(Stdout, ClosedItsTextGoesIntoNoFile) {
  const auto folder = fresh_folder();
  const std::string log = (folder / "run.jsonl").string();
  EXPECT_EQ(exit_code_with("train --trainer reference --model tiny --steps 2 -b 1 -t 8 --log " + log, ">&- 2>/dev/null"), 0);
  std::ifstream lines(log);
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) EXPECT_THAT(line, StartsWith("{"));
  EXPECT_GE(n, 4);
  std::filesystem::remove_all(folder);
}

// The output took the place of the file, and what was printed was lost; a log and the steps overwrote each other.
TEST(Stdout, AFileThatItGoesIntoIsNoOutputBesideIt) {
  const auto folder = fresh_folder();
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const std::string train = "train --trainer reference --model tiny --steps 1 -b 1 -t 8 ";
  for (const std::string& arguments :
       {train + "--run-json /dev/stdout", train + "--log /dev/stdout", "report " + kDocument + " --csv " + out}) {
    EXPECT_EQ(exit_code_with(arguments, ">" + out + " 2>" + err), 2) << arguments;
    EXPECT_THAT(slurp(err), HasSubstr(": what this program prints goes into the same file, expected another one")) << arguments;
    EXPECT_EQ(slurp(out), "") << arguments;
  }
  EXPECT_EQ(exit_code_with(train + "--log /dev/stdout", "2>" + err + " | cat >" + out), 0);
  EXPECT_THAT(slurp(out), testing::AllOf(HasSubstr("{\"event\":\"end\""), HasSubstr("step     1 | loss "))) << slurp(err);
  std::filesystem::remove_all(folder);
}

// What `report <(zcat profile.json.gz)` reads can be read once.
TEST(Report, ReadsAPipe) {
  const auto folder = fresh_folder();
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(std::system(("cat " + kDocument + " >" + pipe + " &").c_str()), 0);
  const Outcome o = stepscope("report " + pipe, "CUDA_VISIBLE_DEVICES= timeout 20");  // one that reads it twice waits for ever
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(o.out, stepscope("report " + kDocument).out);
  std::filesystem::remove_all(folder);
}

TEST(FileNames, ThatAreNoUtf8AreShownWithAReplacement) {
  const auto folder = fresh_folder();
  const std::string at = folder.string(), name = at + "/\xe4.json";
  std::filesystem::copy_file(kDocument, name);
  for (const std::string& arguments :
       {"diff " + name + " " + kDocument + " --json -o " + at + "/diff.json", "report " + name + " --report " + at + "/\xe4.md",
        "train --trainer reference --model tiny -b 1 -t 8 --steps 1 --log " + at + "/\xe4.jsonl --run-json " + at + "/run.json"}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 0) << arguments << o.err;
  }
  for (const char* file : {"diff.json", "run.json"}) EXPECT_THAT(slurp(folder / file), HasSubstr("\xef\xbf\xbd")) << file;
  const Outcome page = stepscope("report " + name + " --report " + at + "/\xe4.html");
  if (draws_pages())
    EXPECT_EQ(page.exit_code, 0) << page.err;
  else
    expect_the_package_named(page, at + "/\xe4.html");  // as it was typed: a terminal may know it
  std::filesystem::remove_all(folder);
}

struct Mistake {
  const char *arguments, *message;
};
TEST(Mistakes, AreNamedInTheOrderOfTheCommandLineAndPointToTheHelpOfTheirCommand) {
  for (const Mistake& m :
       {Mistake{"train --save-every 1 --save-to ck",
                "stepscope: unknown here: --save-every 1 --save-to ck\nTry `stepscope train --help`.\n"},
        Mistake{"baseline verify --now", "unknown here: --now\nTry `stepscope baseline verify --help`.\n"},
        Mistake{"experiment", "Try `stepscope experiment --help`.\n"}, Mistake{"train --steps 0", "Try `stepscope train --help`.\n"},
        Mistake{"train --steps 3 --steps 4", "stepscope: --steps: given 2 times, expected once\n"},
        Mistake{"", "expected a command; `stepscope --help` lists them"},
        Mistake{"--steps 5 train", "'--steps': expected a command first; `stepscope --help` lists them"}}) {
    const Outcome o = stepscope(m.arguments);
    EXPECT_EQ(o.exit_code, 2) << m.arguments;
    EXPECT_THAT(o.err, HasSubstr(m.message));
  }
}

TEST(Resample, SaysForWhichLooksARecordIsTooShort) {
  const std::string aa = TEST_DATA "/aa/";
  EXPECT_THAT(stepscope("experiment resample " + aa + "h200-mixed-d12-b64-alone.json").out,
              HasSubstr("19 pairs: looks from 24 pairs on are left out"));
  EXPECT_THAT(stepscope("experiment resample " + aa + "h200-mixed-d12-b64-trials.json").out, ::testing::Not(HasSubstr("left out")));
}

TEST(Experiment, CheckTakesTheFolderOfAVerdict) {
  const Outcome there = stepscope("experiment check " SOURCE_DIR "/experiments/studies/ranks-two-gpus");
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_THAT(there.out, HasSubstr("/ranks-two-gpus/verdict.json: as it was written\n"));
  const Outcome none = stepscope("experiment check " SOURCE_DIR "/experiments/plan");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("/experiments/plan/verdict.json: cannot be read"));
}

// Its help led to --quick and to an experiment's file, and it takes neither.
TEST(Experiment, CommandsExplainTheirFlagsByWhatTheyTake) {
  const std::string help = stepscope("experiment resample --help").out;
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--quick")));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("experiment file")));
  EXPECT_THAT(help, HasSubstr("in percent (default: 0.3)"));
  const std::string run = stepscope("experiment run --help").out, aa = stepscope("experiment aa --help").out,
                    coverage = stepscope("experiment coverage --help").out;
  EXPECT_THAT(run, HasSubstr("4 to 13 with --quick (12)"));
  EXPECT_THAT(run, HasSubstr("the experiment file's, else 0.3"));
  EXPECT_THAT(aa, HasSubstr("4 to 13 with --quick (12)"));
  for (const std::string& without_files : {aa, coverage, stepscope("experiment since --help").out})
    EXPECT_THAT(without_files, HasSubstr("in percent (default: 0.3)"));
  EXPECT_THAT(coverage, ::testing::Not(HasSubstr("--quick")));
}

TEST(Mistakes, TheFlagOrCommandThatWasProbablyMeantIsNamed) {
  for (const Mistake& m :
       {Mistake{"train --stpes 5 --quite", "unknown here: --stpes 5 --quite; the nearest is --steps\nTry `stepscope train"},
        Mistake{"train -steps 5", "unknown here: -steps 5; the nearest is --steps\n"},
        Mistake{"profile --batch_size=8", "unknown here: --batch_size=8; the nearest is --batch-size\n"},
        Mistake{"baseline verify --jsn", "unknown here: --jsn; the nearest is --json\n"}, Mistake{"train tiny", "unknown here: tiny\n"},
        Mistake{"reprot", "unknown command 'reprot', the nearest is `report`; `stepscope --help` lists them\n"},
        Mistake{"amr", "unknown command 'amr'; `stepscope --help` lists them\n"},
        Mistake{"experiment chekc",
                "unknown command 'experiment chekc', the nearest is `experiment check`; `stepscope experiment --help` lists them\n"},
        Mistake{"help", "unknown command 'help'; `stepscope --help` lists them\n"}}) {
    const Outcome o = stepscope(m.arguments);
    EXPECT_EQ(o.exit_code, 2) << m.arguments;
    EXPECT_THAT(o.err, HasSubstr(m.message));
  }
}

TEST(Mistakes, ACommandOfACommandThatIsNoneIsNamed) {
  const Outcome o = stepscope("experiment foo");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("unknown command 'experiment foo'; `stepscope experiment --help` lists them"));
}

TEST(Mistakes, AWholeNumberThatIsTooLargeSaysHowLargeOneMayBe) {
  const Outcome o = stepscope("train --steps 99999999999999999999");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--steps: found '99999999999999999999', expected a whole number, 1 to 9223372036854775807"));
}

TEST(Mistakes, RowsOfACsvThatNobodyAskedForAreRefused) {
  for (const std::string rows : {"op", "kernel"}) {  // the second is the default
    const Outcome o = stepscope("report " + kDocument + " --csv-rows " + rows);
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, HasSubstr("--csv-rows " + rows + ": expected --csv FILE or a report FILE.csv"));
  }
  const auto folder = fresh_folder();
  for (const char* flag : {"--csv ", "-o "})
    EXPECT_EQ(stepscope("report " + kDocument + " --csv-rows op " + flag + (folder / "rows.csv").string()).exit_code, 0) << flag;
  std::filesystem::remove_all(folder);
}

TEST(Mistakes, RowsOfATableThatNobodyWritesAreRefused) {
  const auto folder = fresh_folder();
  const std::string at = folder.string(), log = at + "/run.jsonl", csv = SOURCE_DIR "/tests/ingest/data/fp32_basic.raw.base.csv";
  ASSERT_EQ(stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 1 --log " + log).exit_code, 0);
  const std::string report = "report " + kDocument, diff = "diff " + kDocument + " " + kDocument,
                    ingest = "ingest " + csv + " --out " + at + "/i.json";
  for (const auto& [arguments, message] :
       {std::pair(report + " --json --by op", "--by: --json prints all rows and no table; leave one of the two out"),
        std::pair(report + " --json --top 3 -o " + at + "/r.csv", "--top: --json prints all rows and no table"),
        std::pair(ingest + " --json --by kernel", "--by: --json prints all rows and no table"),
        std::pair("report " + log + " --json --top 3", "--top: --json prints all rows and no table"),
        std::pair("report " + log + " --by kernel", "--by kernel: expected a profile document with it"),
        std::pair("report " + log + " --csv-rows kernel --csv " + at + "/l.csv", "--csv-rows kernel: expected a profile document with it"),
        std::pair(diff + " --json --by op", "--by: --json prints all rows and no table"),
        std::pair(diff + " --json --top 3 -o " + at + "/d.json", "--top: --json prints all rows and no table"),
        std::pair(diff + " --by pass --top 3", "--top: --by pass shows no second table; leave one of the two out")}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(o.out, "") << arguments;
  }
  EXPECT_FALSE(std::filesystem::exists(at + "/i.json"));
  // Markdown has the table.
  for (const std::string& arguments : {report, diff})
    EXPECT_EQ(stepscope(arguments + " --json --by op --top 3 -o " + at + "/m.md").exit_code, 0) << arguments;
  std::filesystem::remove_all(folder);
}

TEST(Mistakes, TwoOutputsOfOneNameAreRefusedBeforeOneReplacesTheOther) {
  const auto folder = fresh_folder();
  const std::string at = folder.string(), csv = at + "/report.csv";
  std::filesystem::copy_file(SOURCE_DIR "/tests/ingest/data/fp32_basic.raw.base.csv", csv);
  for (const auto& [arguments, flags] :
       {std::pair("report " + kDocument + " --csv " + at + "/a.csv -o " + at + "/./a.csv", "--csv and -o/--out both name "),
        {"report " + kDocument + " --csv new.csv -o $PWD/new.csv", "--csv and -o/--out both name "},
        std::pair("profile --trainer reference --steps 1 --out " + at + "/a.json --trace " + at + "/a.json",
                  "--out and --trace both name "),
        std::pair("ingest " + csv + " --out " + at + "/a.json --metrics-csv " + csv, "the report to read and --metrics-csv both name ")}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(flags));
  }
  EXPECT_FALSE(std::filesystem::exists(at + "/a.json"));
  EXPECT_EQ(slurp(csv), slurp(SOURCE_DIR "/tests/ingest/data/fp32_basic.raw.base.csv"));
  EXPECT_EQ(stepscope("report " + kDocument + " --csv /dev/null -o " + at + "/b.md --trace /dev/null").exit_code, 0);
  std::filesystem::remove_all(folder);
}

TEST(Mistakes, AnOutputThatIsAnInputIsRefusedBeforeItIsReplaced) {
  const auto folder = fresh_folder();
  const std::string at = folder.string(), a = at + "/a.json", b = at + "/b.json", text = at + "/text.bin", log = at + "/run.jsonl";
  std::filesystem::copy_file(kDocument, a);
  std::filesystem::create_symlink(a, b);
  std::ofstream(text) << "some text";
  const Outcome trained = stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 1 --log " + log);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string logged = slurp(log);
  for (const auto& [arguments, flags] :
       {std::pair("report " + a + " --csv " + a, "the document to read and --csv both name " + a),
        std::pair("report " + a + " -o " + b, "the document to read and -o/--out both name " + b),
        std::pair("report " + log + " --report " + log + " --csv " + log, std::string("the document to read and --csv both name ")),
        std::pair("diff " + a + " " + kDocument + " -o " + a, std::string("the document to read and -o/--out both name ")),
        std::pair("join " + a + " --out " + a, std::string("the recording to read and -o/--out both name ")),
        std::pair("energy --from " + a + " -o " + a, std::string("--from and -o/--out both name ")),
        std::pair("energy --from " + a + " -o " + b + " --profile " + a, std::string("--from and -o/--out both name ")),
        std::pair("data " + text + " --vocab " + a + " --out " + text, std::string("the text to read and --out both name ")),
        std::pair("data --eval-set hellaswag " + text + " --vocab " + a + " --out " + a, std::string("--vocab and --out both name ")),
        std::pair("train --trainer reference --model tiny --log " + at + "/x --run-json " + at + "/x",
                  std::string("--log and --run-json both name ")),
        std::pair("train --trainer reference --model tiny --data " + text + " --run-json " + text,
                  std::string("--data and --run-json both name ")),
        std::pair("train --trainer reference --model tiny --data '" + at + "/te*.bin' --run-json " + text,
                  std::string("--data and --run-json both name ")),
        std::pair("profile --model tiny --data '" + at + "/te*.bin' -o " + text, std::string("--data and --out both name ")),
        std::pair("train --trainer reference --model tiny -b 1 -t 8 --steps 1 --run-json " + text,
                  std::string("is there already and is no run.json"))}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(flags)) << arguments;
  }
  EXPECT_EQ(slurp(a), slurp(kDocument));
  EXPECT_EQ(slurp(text), "some text");
  EXPECT_EQ(slurp(log), logged);
  std::filesystem::remove_all(folder);
}

TEST(Mistakes, FlagsOfProfileThatWouldDoNothingAreNamed) {
  for (const Mistake& m :
       {Mistake{"profile --batch-size 16 -- ./prog", "--batch-size: expected a trainer; another program takes its own flags"},
        Mistake{"profile --trainer mixed -- ./prog", "--trainer: expected a trainer; another program takes its own flags"},
        Mistake{"profile --no-shuffle --step-range step -- ./prog", "--no-shuffle: expected a trainer"},
        Mistake{"profile --steps 5 -- ./prog", "--steps: expected --step-range with it"},
        Mistake{"profile --warmup 5 -- ./prog", "--warmup: expected --step-range with it"},
        Mistake{"profile --traced-steps 5 -- ./prog", "--traced-steps: expected --step-range with it"},
        Mistake{"profile --raw-trace raw.jsonl -- ./prog", "--raw-trace: expected --step-range with it"},
        Mistake{"profile --max-launches 5 --step-range step -- ./prog", "--max-launches: expected a program without --step-range"},
        Mistake{"profile --trainer reference --steps 1 --max-launches 5", "--max-launches: expected a program behind --"},
        Mistake{"profile --trainer reference --steps 1 --communicator auto", "--communicator: expected --gpus N with it"},
        Mistake{"profile --trainer reference --steps 1 --link-ceilings links.json", "--link-ceilings: expected --gpus N with it"},
        Mistake{"profile --trainer reference --steps 1 --no-counters --metric a", "--metric: --no-counters reads none"}}) {
    const Outcome o = stepscope(m.arguments);
    EXPECT_EQ(o.exit_code, 2) << m.arguments;
    EXPECT_THAT(o.err, HasSubstr(m.message));
  }
  const Outcome raw = stepscope("profile --trainer reference -b 1 -t 8 --steps 1 --out /dev/null --raw-trace /tmp/raw.jsonl");
  EXPECT_EQ(raw.exit_code, 2);
  EXPECT_THAT(raw.err, HasSubstr("--raw-trace /tmp/raw.jsonl: the CPU reference writes none"));
  const Outcome validation = stepscope("profile --trainer reference -b 1 -t 8 --steps 1 --out /dev/null --val-data a.bin");
  EXPECT_EQ(validation.exit_code, 0);
  EXPECT_THAT(validation.err, HasSubstr("--val-data: left out, because the steps of a profile have no validation loss"));
  const Outcome of_a_gpu =
      stepscope("profile --trainer reference -b 1 -t 8 --steps 1 --out /dev/null --metric dram__bytes.sum --measure-ceilings");
  EXPECT_THAT(of_a_gpu.err, HasSubstr("stepscope: --metric, --measure-ceilings: left out, because the CPU reference has neither"));
  // Those that such a program has a use for go on to the machine, or to the program that is not there.
  EXPECT_THAT(stepscope("profile --steps 5 --warmup 5 --traced-steps 5 --step-range step -- /no/prog").err,
              HasSubstr("cannot start '/no/prog'"));
  EXPECT_THAT(stepscope("profile --max-launches 5 -- /no/prog --batch-size 16").err, HasSubstr("cannot start '/no/prog'"));
}

TEST(Mistakes, FlagsOfTrainThatWouldDoNothingAreNamed) {
  const std::string train = "train --trainer reference --model tiny -b 1 -t 8 --steps 1 ";
  for (const auto& [flags, message] :
       {std::pair("--val-data a.bin", "--val-data: expected --val-every N with it"),
        std::pair("--val-batches 3", "--val-batches: expected --val-every with it"),
        std::pair("--sample-tokens 3", "--sample-tokens: expected --sample-every with it"),
        std::pair("--sample-temperature 1", "--sample-temperature: expected --sample-every with it"),
        std::pair("--sample-top-k 3", "--sample-top-k: expected --sample-every with it"),
        std::pair("--tokenizer a.bin", "--tokenizer: expected --sample-every with it"),
        std::pair("--keep-checkpoints 3", "--keep-checkpoints: expected --checkpoints with it"),
        std::pair("--communicator nccl", "--communicator: expected --gpus N with it"),
        std::pair("--bucket-mib 5", "--bucket-mib: expected --gpus N with it"),
        std::pair("--stall-timeout 5", "--stall-timeout: expected --gpus N with it"),
        std::pair("--total-batch 64 --accumulation 4", "--accumulation: --total-batch sets it"),
        std::pair("--sweep-learning-rates 1e-4,1e-3 --lr 1", "--lr: --sweep-learning-rates names the rates"),
        std::pair("--sweep-learning-rates 1e-4,1e-3 --gpus 2", "--sweep-learning-rates: its runs use one GPU each; expected no --gpus"),
        std::pair("--sweep-learning-rates 1e-4,1e-3 --communicator nccl",
                  "--communicator: --sweep-learning-rates does runs of one GPU each; leave one of the two out"),
        std::pair("--sweep-learning-rates 1e-4,1e-3 --stall-timeout 3",
                  "--stall-timeout: --sweep-learning-rates does runs of one GPU each; leave one of the two out"),
        std::pair("--sweep-learning-rates 1e-4,1e-3 --rank 0 --world 1",
                  "--rank: --sweep-learning-rates does runs of one GPU each; leave one of the two out"),
        std::pair("--sweep-learning-rates 1e-4,1e-3 --rendezvous tcp:nohost:1",
                  "--rendezvous: --sweep-learning-rates does runs of one GPU each; leave one of the two out")}) {
    const Outcome o = stepscope(train + flags);
    EXPECT_EQ(o.exit_code, 2) << flags;
    EXPECT_THAT(o.err, HasSubstr(message)) << flags;
  }
  EXPECT_EQ(stepscope(train + "--gpus 1 --communicator staged --bucket-mib 5").exit_code, 0) << "a script may count its GPUs";
  const Outcome ranks = stepscope(train + "--sweep-learning-rates 1e-4,1e-3", "PMI_RANK=1 PMI_SIZE=3 CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(ranks.exit_code, 2) << "each rank did the whole sweep";
  EXPECT_THAT(ranks.err, HasSubstr("--sweep-learning-rates: this process is rank 1 of 3 (started by mpich)"));
}

TEST(Mistakes, FlagsThatWouldDoNothingBesideAListOrWithoutAMeasurementAreNamed) {
  for (const Mistake& m :
       {Mistake{"ingest --metrics-command --by op", "--by: --metrics-command prints a command line and reads nothing"},
        Mistake{"ingest report.csv --metrics-command", "file: --metrics-command prints a command line and reads nothing"},
        Mistake{"gate --list-checks --json", "--json: --list-checks prints a list and checks nothing"},
        Mistake{"train --list-variants --steps 4", "--steps: --list-variants prints a list and trains nothing"},
        Mistake{"train --list-variants --trainer reference", "--list-variants: the CPU reference has no variants"},
        Mistake{"train --list-variants --trainer mine", "unknown trainer 'mine'"},
        Mistake{"energy --val-data a.bin", "--val-data: the steps that are measured have no validation loss"},
        Mistake{"experiment aa --trials 1 --trainer mixed --val-data a.bin",
                "--val-data: the steps that are measured have no validation loss"},
        Mistake{"experiment since HEAD --trainer mixed --val-data a.bin",
                "--val-data: the steps that are measured have no validation loss"},
        Mistake{"doctor --most-mib 3", "--most-mib: expected --gpus N with it"},
        Mistake{"doctor --communicator staged", "--communicator: expected --gpus N with it"},
        Mistake{"doctor --gpus 2 --json", "--json: --gpus N prints a table"}}) {
    const Outcome o = stepscope(m.arguments);
    EXPECT_EQ(o.exit_code, 2) << m.arguments;
    EXPECT_THAT(o.err, HasSubstr(m.message)) << m.arguments;
    EXPECT_EQ(o.out, "") << m.arguments;
  }
}

#ifndef STEPSCOPE_WITH_CUDA
// What `./stepscope` builds where there is no GPU: one command named no cure, the other passed experiments whose variants it does not know.
TEST(Variants, AProgramWithoutThemSaysWhereTheyAreAndHowTheyAreBuilt) {
  const auto root = fresh_folder();
  std::filesystem::create_directories(root / "experiments/studies");
  const Outcome variants = stepscope("train --list-variants"),
                experiments = stepscope("experiment list", "STEPSCOPE_ROOT=" + root.string());
  EXPECT_EQ(variants.exit_code, 3);
  EXPECT_THAT(variants.err,
              testing::AllOf(HasSubstr("mixed/variants.cpp and fp32/variants.cpp"), HasSubstr("STEPSCOPE_CUDA=ON ./stepscope")));
  EXPECT_EQ(experiments.exit_code, 0);
  EXPECT_THAT(experiments.err,
              testing::AllOf(HasSubstr("the variants of these experiments were not checked: "), HasSubstr("STEPSCOPE_CUDA=ON")));
  std::filesystem::remove_all(root);
}
#endif

TEST(Mistakes, AMinusIsNoOutput) {
  const Outcome o = stepscope("report " + kDocument + " --csv -");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--csv -: expected a file; /dev/stdout"));
  EXPECT_FALSE(std::filesystem::exists("-"));
}

// `report -o x.html` writes a page; the commands that make a document wrote its JSON under such a name.
TEST(Mistakes, ADocumentIsNotWrittenUnderTheNameOfAReport) {
  const auto folder = fresh_folder();
  const std::string at = folder.string() + "/x";
  for (const std::string ending : {".html", ".md", ".csv", ".trace.json"})
    for (const std::string& command :
         {std::string("profile --trainer reference --model tiny -b 1 -t 8 --steps 1 "),
          std::string("ingest " SOURCE_DIR "/tests/ingest/data/mixed_nvtx.ncu-rep "), "join " + kDocument + " "}) {
      const Outcome o = stepscope(command + "-o " + at + ending);
      EXPECT_EQ(o.exit_code, 2) << command;
      EXPECT_THAT(o.err, HasSubstr("--out " + at + ending + ": takes the document, which is JSON; `--report " + at + ending + "` writes"))
          << command;
      EXPECT_FALSE(std::filesystem::exists(at + ending)) << command;
    }
  std::filesystem::remove_all(folder);
}

// Of two kinds of files the other command is named.
TEST(Mistakes, AReportOfNsightIsNoDocumentAndADocumentIsNoReport) {
  for (const char* file : {"fp32_nvtx.ncu-rep", "fp32_nvtx.raw.base.csv", "two_steps.sqlite"}) {
    const Outcome o = stepscope("report " SOURCE_DIR "/tests/ingest/data/" + std::string(file));
    EXPECT_EQ(o.exit_code, 2) << file;
    EXPECT_THAT(o.err, HasSubstr(std::string(file) + ": not a profile document, but a report of Nsight: `stepscope ingest ")) << file;
  }
  const Outcome o = stepscope("ingest " + kDocument);
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("a profile document already; `stepscope report " + kDocument));
}

// A receipt made with --steps 1 was one like any other, and `--no-model` of a trainer without op checks was a gate that failed silently.
TEST(Mistakes, FlagsOfGateThatWouldDoNothingOrWeakenAReceiptAreNamed) {
  const std::string only = ": --write-receipt checks every variant and every matmul mode";
  for (const auto& [arguments, message] :
       {std::pair("gate --trainer fp32 --write-receipt --steps 1", "--steps" + only),
        std::pair("gate --trainer fp32 --write-receipt -b 1", "--batch-size" + only),
        std::pair("gate --trainer fp32 --write-receipt --op-sizes odd,odd,odd", "--op-sizes" + only),
        std::pair("gate --trainer fp32 --write-receipt --matmul tf32", "--matmul" + only),
        std::pair("gate --check-receipts --trainer fp32", std::string("--trainer: --check-receipts compares files and runs nothing")),
        std::pair("gate --check-receipts --receipt-folder no_folder", std::string("--receipt-folder no_folder: there is no such folder")),
        std::pair("gate --trainer fp32 --write-receipt --receipt-folder /dev/null/receipts",
                  std::string("--receipt-folder: cannot write into /dev/null/receipts")),
        std::pair("gate --check-receipts --source-root /tmp", std::string("/tmp is no source tree of stepscope")),
        std::pair("gate --source-root /tmp", std::string("--source-root: expected --check-receipts with it")),
        std::pair("gate --receipt-folder /tmp", std::string("--receipt-folder: expected --write-receipt or --check-receipts with it")),
        std::pair("gate --trainer reference --checkpoint a.bin --state b.bin --steps 3",
                  std::string("--steps: --checkpoint and --state are compared as they are")),
        std::pair("gate --trainer reference --seeds 2 --seed 3", std::string("--seed: --seeds names the seeds")),
        std::pair("gate --trainer reference --seeds 2 --real-size", std::string("--real-size: --seeds names the seeds, and runs neither")),
        std::pair("gate --seeds 2 --configurations mixed --variant gelu_forward=kernel",
                  std::string("--variant: --configurations names all that a trainer is asked with; leave one of the two out")),
        std::pair("gate --trainer mixed --seeds 2 --configurations mixed --weight-rounding stochastic",
                  std::string("--weight-rounding: --configurations names all")),
        std::pair("gate --trainer mixed --seeds 2 --configurations mixed --not-deterministic",
                  std::string("--not-deterministic: --configurations names all")),
        std::pair("gate --trainer reference --model tiny --real-size",
                  std::string("--real-size: --model checks that model alone, without ops and d12; leave one of the two out")),
        std::pair("gate --trainer fp32 --model tiny --op-sizes odd", std::string("--op-sizes: --model checks that model alone")),
        std::pair("gate --trainer fp32 --no-ops --op-sizes odd", std::string("--op-sizes: --no-ops skips the ops")),
        std::pair("gate --trainer reference --no-model", std::string("--no-model: nothing is left to check of the CPU reference")),
        std::pair("gate --trainer fp32 --no-model --no-ops", std::string("--no-model: nothing is left to check with --no-ops")),
        std::pair("gate --trainer fp32 --no-model --batch-size 5",
                  std::string("--batch-size: --no-model checks single ops and no whole model; leave it out")),
        std::pair("gate --trainer reference --weight-rounding foo", std::string("--weight-rounding: foo not in {nearest,stochastic}")),
        std::pair("gate --trainer reference --weight-rounding stochastic",
                  std::string("--weight-rounding stochastic: the reference trainer does not have it, --trainer mixed does")),
        std::pair("gate --trainer fp32 --recompute gelu", std::string("--recompute gelu: the fp32 trainer does not have it")),
        std::pair("train --trainer reference --recompute foo", std::string("--recompute: foo not in {none,gelu,gelu+ln}")),
        std::pair("gate --trainer reference --not-deterministic", std::string("--not-deterministic: the reference trainer always repeats")),
        std::pair("gate --trainer reference --op adamw", std::string("--op: the CPU reference has no op checks")),
        std::pair("gate --trainer reference --op-sizes odd", std::string("--op-sizes: the CPU reference has no op checks")),
        std::pair("gate --trainer fp32 --op adamw --variant adamw=arenas",
                  std::string("--variant: --op checks single ops and no whole model; leave it out")),
        std::pair("gate --trainer fp32 --op adamw --no-ops", std::string("--no-ops: --op checks single ops")),
        std::pair("gate --trainer fp32 --op adamw --write-receipt", "--op" + only),
        std::pair("gate --trainer reference --no-ops", std::string("--no-ops: the CPU reference has no op checks; leave it out")),
        std::pair("gate --trainer reference --no-real-size",
                  std::string("--no-real-size: the CPU reference is compared at that size with --real-size alone")),
        std::pair("gate --trainer reference --real-size --no-real-size", std::string("--real-size and --no-real-size exclude"))}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
  EXPECT_NE(stepscope("gate --check-receipts --json").exit_code, 2);
  EXPECT_THAT(stepscope("gate --check-receipts", "STEPSCOPE_ROOT=/tmp").err, HasSubstr("/tmp is no source tree"))
      << "as `experiment` takes it";
}

TEST(Mistakes, FlagsThatWouldDoNothingAreNamed) {
  const Outcome range = stepscope("profile --trainer reference --steps 1 --step-range step");
  EXPECT_EQ(range.exit_code, 2);
  EXPECT_THAT(range.err, HasSubstr("--step-range step: expected a program behind --"));
  const Outcome links = stepscope("doctor --links links.json");
  EXPECT_EQ(links.exit_code, 2);
  EXPECT_THAT(links.err, HasSubstr("--links: expected --gpus N with it"));
  const auto folder = fresh_folder();
  const Outcome metric =
      stepscope("profile --trainer reference -b 1 -t 8 --steps 1 --metric dram__bytes.sum --out " + (folder / "p.json").string());
  EXPECT_EQ(metric.exit_code, 0);
  EXPECT_THAT(metric.err, HasSubstr("--metric: left out, because the CPU reference has neither hardware counters nor ceilings"));
  std::filesystem::remove_all(folder);
}

TEST(Recordings, ThatCannotBeReadSayWhy) {
  for (const auto& [file, message] :
       {std::pair("/no", "/no: cannot be read: No such file or directory"), std::pair("/tmp", "/tmp: cannot be read: Is a directory")}) {
    const Outcome o = stepscope(std::string("join ") + file + " --out /dev/null");
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, HasSubstr(message));
  }
}

TEST(ForeignJson, SaysWhereAndWhy) {
  const auto folder = fresh_folder();
  const std::string whole = slurp(kDocument), file = (folder / "a.json").string();
  struct Case {
    std::string text, why;
  };
  for (const Case& c :
       {Case{"", "the file is empty"}, Case{" \n", "the file is empty"}, Case{"[1]", "JSON of type array, expected an object"},
        Case{"{\n \"schema\": 'x'}", "line 2, column 12: no JSON from here on"},
        Case{"{\n \"a\": [1,", "line 2, column 10: the file ends within the JSON"},
        Case{whole.substr(0, whole.size() / 2), ": the file ends within the JSON"},
        Case{"{\"a\":1}\n{\"a\":2}\n", "line 2: a second value follows; this is a file of one JSON object per line"},
        Case{std::string("\xff\xfe{\0}\0", 6), "the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8 /"},
        Case{"{\"a\": 1,\n \"a\": 2}", "line 2, column 2: \"a\" stands twice in one object"},
        Case{"{\"a\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}", "a value more than 500 levels deep"}}) {
    std::ofstream(file, std::ios::binary) << c.text;
    const Outcome o = stepscope("diff " + kDocument + " " + file);
    EXPECT_EQ(o.exit_code, 2) << c.why;
    EXPECT_THAT(o.err, HasSubstr("a.json: not a profile document: "));
    EXPECT_THAT(o.err, HasSubstr(c.why));
  }
  std::filesystem::remove_all(folder);
}

// A file may be named by a pattern of the shell, and so with bytes that nobody typed.
TEST(Terminal, GetsNoControlCharactersOfAFileThatWasWritten) {
  const auto folder = fresh_folder();
  const std::string csv = (folder / "a\x1b[2J.csv").string();
  const Outcome o = stepscope("report " + kDocument + " --csv '" + csv + "'");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::exists(csv));
  EXPECT_EQ(o.err, "rows: " + (folder / "a?[2J.csv").string() + "\n");
  std::filesystem::remove_all(folder);
}

// Names come from programs and from files edited by hand: what they hold must not steer the reader's terminal.
TEST(Terminal, GetsNoControlCharactersOfADocumentOrALog) {
  const auto folder = fresh_folder();
  const auto at = [&](const char* name) { return (folder / name).string(); };
  json d = json::parse(slurp(kDocument));
  const std::string evil =
      "\x1b]0;title\x07\x1b[2J\xC2\x9B"
      "31m";
  for (const char* field : {"trainer", "device", "model_name", "matmul"}) d["run"][field] = evil;
  for (const auto& [list, name] : {std::pair("kernels", "name"), std::pair("launches", "name"), std::pair("passes", "top_kernel")})
    for (json& row : d[list]) row[name] = evil + row[name].get<std::string>();
  json missing = d["missing"][0];
  for (const char* field : {"name", "detail", "advice"}) missing[field] = evil;
  d["missing"].push_back(missing);
  std::ofstream(at("a.json")) << d.dump();
  std::ofstream(at("a.jsonl")) << json{{"event", "run"}, {"schema", "stepscope.log/1"}, {"settings", {{"trainer", evil}}}}.dump() << "\n"
                               << json{{"event", "note"}, {"step", 0}, {"text", evil + "\nnext"}}.dump() << "\n";
  json word = d;
  word["timing"]["state"] = evil;
  std::ofstream(at("word-b.json")) << word.dump();
  d["run"][evil] = 1;
  std::ofstream(at("b.json")) << d.dump();
  for (const std::string& arguments : {"report " + at("a.json"), "report --by op " + at("a.json"), "diff " + kDocument + " " + at("a.json"),
                                       "report " + at("a.jsonl"), "report " + at("b.json"), "report " + at("word-b.json")}) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, arguments.ends_with("b.json") ? 2 : 0) << o.err;
    EXPECT_THAT(o.out + o.err, HasSubstr("?]0;title??[2J?31m")) << arguments;
    for (const char* control : {"\x1b", "\x07", "\xC2\x9B"}) EXPECT_THAT(o.out + o.err, testing::Not(HasSubstr(control))) << arguments;
  }
  std::filesystem::remove_all(folder);
}

TEST(Report, PrintsTheBytesThatItWrites) {
  const auto folder = fresh_folder();
  for (const auto& [flag, ending] : {std::pair("--json", "json"), std::pair("--csv /dev/stdout --json", "csv")}) {
    const std::string file = (folder / (std::string("a.") + ending)).string();
    const Outcome o =
        stepscope("report " + kDocument + " " + flag + " -o " + file, "run() { { \"$@\"; echo \"exit $?\" >&2; } | cat; }; run");
    EXPECT_THAT(o.err, HasSubstr("exit 0\n")) << flag;
    EXPECT_THAT(o.out, StartsWith(slurp(file))) << flag;
    if (std::string(ending) == "json") {
      EXPECT_EQ(o.out, slurp(file));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(Machine, ATemporaryFolderThatIsNotThereIsNamed) {
  const auto folder = fresh_folder();
  const Outcome o =
      stepscope("profile --trainer reference --steps 1 --out " + (folder / "p.json").string(), "CUDA_VISIBLE_DEVICES= TMPDIR=/no/such");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("cannot make a temporary folder: the variable TMPDIR names '/no/such', expected a folder"));
  std::filesystem::remove_all(folder);
}

// `energy` has the trainers' flags, but takes as many steps as its seconds hold.
TEST(Help, ShowsNoFlagThatIsAlwaysRefused) {
  EXPECT_THAT(stepscope("energy --help").out,
              testing::AllOf(HasSubstr("--seq-len"), testing::Not(HasSubstr("--steps ")), testing::Not(HasSubstr("--val-data"))));
  const Outcome o = stepscope("energy --steps 4");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--steps: as many are taken"));
}

TEST(Mistakes, AModelThatACommandDoesNotTakeIsNamedWithThoseThatItDoes) {
  for (const char* command : {"gate --trainer reference", "kernels layernorm_forward"}) {
    const Outcome o = stepscope(std::string(command) + " --model /dev/null");
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, HasSubstr("--model '/dev/null': expected one of d12, d24"));
    EXPECT_THAT(o.err, testing::Not(HasSubstr("checkpoint file")));
  }
}

// "This program reads stepscope.profile/1" left whoever had the file to guess what reads it.
TEST(Report, OfADocumentOfAnotherKindNamesWhatReadsIt) {
  const Outcome energy = stepscope("report " SOURCE_DIR "/tests/energy/data/document.json");
  EXPECT_EQ(energy.exit_code, 2);
  EXPECT_THAT(energy.err,
              HasSubstr("\"stepscope.energy/1\"; this program reads \"stepscope.profile/1\"; `stepscope energy --from` shows it\n"));
  EXPECT_THAT(stepscope("report " SOURCE_DIR "/experiments/studies/ranks-two-gpus/verdict.json").err,
              HasSubstr("; its page is README.md beside it, and `stepscope experiment check` checks it\n"));
  EXPECT_THAT(stepscope("report " SOURCE_DIR "/tests/data/links/h200-x2-nccl.json").err,
              HasSubstr("; `stepscope scaling --ceilings` takes it\n"));
  const auto folder = fresh_folder();
  const std::string log = (folder / "run.jsonl").string(), run = (folder / "run.json").string();
  ASSERT_EQ(stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 1 --log " + log + " --run-json " + run).exit_code, 0);
  EXPECT_THAT(stepscope("report " + run).err, HasSubstr("; `stepscope report` shows a run by its log, which `train --log` writes\n"));
  EXPECT_THAT(stepscope("diff " + log + " " + log).err,
              HasSubstr("run.jsonl: not a profile document, but a run's log: `stepscope report` shows it, and several side by side\n"));
  std::filesystem::remove_all(folder);
}

TEST(Gate, WhereThereIsNoGpuSaysWhatItCanCheckThere) {
  const Outcome o = stepscope("gate");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("; --trainer reference checks the CPU reference\n"));
  // An experiment asks for a trainer by name, and has no other to take.
  EXPECT_THAT(stepscope("gate --trainer mixed").err, testing::Not(HasSubstr("--trainer reference")));
}

// Three flags stood in one message with three ranges; only the length, whose default is that of d12, can be wrong there.
TEST(Kernels, ALengthThatTheModelHasNotIsNamedAlone) {
  const Outcome o = stepscope("kernels layernorm_forward --model tiny");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--seq-len 1024: tiny has at most 256 positions\n"));
}

#ifdef STEPSCOPE_WITH_CUDA
// Only behind the measurement of ceilings, and where there is no GPU not at all: the default trainer has no ladder.
TEST(Kernels, ALadderThatThereIsNotIsRefusedBeforeAGpuIsLookedFor) {
  for (const char* flags : {"layernorm_forward", "layernorm_forward --trainer fp32 --matmul tf32", "grad_norm --trainer fp32"}) {
    const Outcome o = stepscope("kernels --ladder " + std::string(flags));
    EXPECT_EQ(o.exit_code, 2) << flags;
    EXPECT_THAT(o.err, HasSubstr("--ladder: expected --trainer fp32 with fp32 products and one of layernorm_forward,")) << flags;
  }
}
#endif

// --verbose promises how long each part took, and of the CPU reference said nothing.
TEST(Gate, VerboseSaysTheTimesOfTheCpuReferenceToo) {
  const std::string gate =
      "gate --trainer reference --model tiny -b 1 -t 8 --steps 1 --without clock --without 'late work' --without 'timed steps' --without "
      "'persisting L2'";
  const Outcome o = stepscope(gate + " --verbose"), quiet = stepscope(gate);
  EXPECT_EQ(o.exit_code, 0) << o.out;
  EXPECT_THAT(o.err, testing::MatchesRegex("stepscope: gate: tiny, .*, fp32: passed in [0-9.]+ s: .*repeatability [0-9.]+ s.*\n"));
  EXPECT_EQ(quiet.err, "");
}

TEST(Mistakes, TheTotalBatchesThatWouldDoAreNumbersThatCanBeTyped) {
  const std::string train = "train --trainer reference --model tiny --steps 1 -b 4 -t 64 --total-batch ";
  for (const auto& [total, expected] : {std::pair("100", "on 1 rank; expected 256\n"), std::pair("300", "on 1 rank; expected 256 or 512\n"),
                                        std::pair("9223372036854775807", "on 1 rank; expected 9223372036854775552\n")}) {
    const Outcome o = stepscope(train + total);
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, testing::EndsWith(expected));
    EXPECT_EQ(stepscope(train + total + " --sweep-learning-rates 1e-4,1e-3").err, o.err);
  }
}

TEST(Divergence, SpeaksOfCheckpointsOnlyWhereThereAreSome) {
  const auto folder = fresh_folder();
  const Outcome o =
      stepscope("train --trainer reference --model tiny --steps 5 -b 1 -t 8 --lr 1e38 --checkpoints " + (folder / "c").string());
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(o.err, testing::AllOf(HasSubstr("step 2: loss is nan and gradient norm nan"), testing::EndsWith(": training stopped\n")));
  const Outcome saved = stepscope(
      "train --trainer reference --model tiny --steps 5 -b 1 -t 8 --lr 1e38 --checkpoint-every 1 --checkpoints " + (folder / "d").string());
  EXPECT_THAT(saved.err, HasSubstr("training stopped; checkpoints in " + (folder / "d").string() + " are of earlier steps"));
  std::filesystem::remove_all(folder);
}

TEST(Ingested, TheTitleNamesTheProgramThatWasMeasured) {
  const auto folder = fresh_folder();
  const Outcome o = stepscope("ingest " SOURCE_DIR "/tests/ingest/data/fp32_basic.ncu-rep --out " + (folder / "p.json").string());
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("NVIDIA H200 | stepscope\n"));
  std::filesystem::remove_all(folder);
}

}  // namespace
