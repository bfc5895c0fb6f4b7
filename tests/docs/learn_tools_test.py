#!/usr/bin/env python3
"""The tools of docs/learn: answers, recorded processes, the playback of a GPU, and the commands that make the chapters' records."""
import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LEARN = ROOT / "docs" / "learn"
ALONE = ROOT / "tests" / "data" / "aa" / "h200-mixed-d12-b4-alone.json"
sys.path.insert(0, str(LEARN))
import check  # noqa: E402
import measure  # noqa: E402
import noise  # noqa: E402
import tables  # noqa: E402


def quietly(function, *arguments):
    """Exit code and what was printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = function(*arguments)
        except SystemExit as e:
            code = e.code
    return int(code or 0), out.getvalue()


def python(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Answers(unittest.TestCase):
    # Worked out from the tables of the chapters with a pocket calculator.
    BY_HAND = {"1a": 0.866, "1b": 29.8, "1c": 0.151, "3a": 1.25, "5a": 589, "5b": 10.82, "6a": 24.28, "6b": 118, "7a": 0.83}

    def test_those_from_the_tables_are_right(self):
        self.assertEqual(set(self.BY_HAND), set(check.EXERCISES))
        for exercise, answer in self.BY_HAND.items():
            self.assertEqual(quietly(check.main, [exercise, str(answer)])[0], 0, exercise)

    def test_others_are_not(self):
        for exercise, answer in self.BY_HAND.items():
            for wrong in (0.8 * answer, 1.2 * answer, -answer, float("nan"), float("inf")):
                self.assertEqual(quietly(check.main, [exercise, str(wrong)])[0], 1, (exercise, wrong))
        self.assertIn("too large", quietly(check.main, ["1a", "1"])[1])
        self.assertIn("too small", quietly(check.main, ["1a", "0.5"])[1])
        self.assertNotIn("too small", quietly(check.main, ["1a", "nan"])[1])

    def test_what_is_no_answer_is_refused(self):
        for arguments in ([], ["1a"], ["9z", "1"], ["1a", "much"]):
            self.assertEqual(quietly(check.main, arguments)[0], 2, arguments)

    def test_no_answer_stands_in_its_chapter(self):  # as 0.165 ms did, a screen above the question
        for exercise, digits in (("1c", "0.15[0-9]"), ("3a", r"1\.25"), ("5a", "5(88|89)")):
            chapter = next(LEARN.glob(f"{exercise[0]}-*.md")).read_text(encoding="utf-8")
            self.assertIsNone(re.search(rf"(?<![0-9.,]){digits}(?![0-9])", chapter), exercise)

    def test_every_exercise_stands_in_a_chapter(self):
        pages = "".join(p.read_text(encoding="utf-8") for p in LEARN.glob("*.md"))
        for exercise in check.EXERCISES:
            self.assertIn(f"docs/learn/check.py {exercise} ", pages)


class Noise(unittest.TestCase):
    def test_tails_of_students_t(self):  # from a printed table
        for t, degrees, p in ((12.706, 1, 0.05), (2.228, 10, 0.05), (3.169, 10, 0.01), (2.0, 58, 0.0502), (0, 5, 1)):
            self.assertAlmostEqual(noise.t_tail(t, degrees), p, delta=2e-4)
            self.assertAlmostEqual(noise.t_tail(-t, degrees), p, delta=2e-4)

    def test_one_look_keeps_its_promise_and_many_do_not(self):
        out = quietly(noise.looks, json.loads(ALONE.read_text()), 1000)[1]
        eager, once, planned = (float(line.split("%")[0]) for line in out.splitlines())
        self.assertGreater(eager, 20)
        self.assertLess(once, 8)
        self.assertLess(planned, 4)

    def test_a_file_that_is_no_such_record_is_refused(self):
        aa = ALONE.parent
        for arguments in ([], ["cool"], ["warm", str(ALONE)], ["cool", "no_such_file"], ["cool", str(aa / "cpu-tiny.json")], ["steps", str(ALONE)],
                          ["cool", str(aa / "h200-mixed-d12-b64-alone.json")], ["looks", __file__]):
            self.assertEqual(quietly(noise.main, arguments)[0], 2, arguments)
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "one.json"
            whole = json.loads(ALONE.read_text())
            record.write_text(json.dumps({**whole, "runs": whole["runs"][:1]}))  # one process is no pair
            self.assertEqual(quietly(noise.main, ["looks", str(record)])[0], 2)


class Replay(unittest.TestCase):
    PROGRAM = LEARN / "exercises" / "replay.py"

    def times(self, *arguments):
        code, out = python(self.PROGRAM, *arguments)
        self.assertEqual(code, 0, out)
        return [float(line.split()[2]) for line in out.splitlines()]

    def test_prints_steps_of_a_process_and_goes_on_after_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "one.json"
            runs = json.loads(ALONE.read_text())["runs"][:1]
            record.write_text(json.dumps({"runs": runs}))
            plain, longer = self.times(2000, "--record", record), self.times(2000, "--record", record, "--plus", 10)
        self.assertEqual(len(plain), 2000)
        self.assertAlmostEqual(plain[0], runs[0]["tenths_ns"][0] / 1e6, places=3)
        self.assertAlmostEqual(longer[0] / plain[0], 1.1, places=4)
        last_second = [t / 1e6 for t in runs[0]["tenths_ns"][-10:]]
        self.assertTrue(all(min(last_second) - 1e-3 <= t <= max(last_second) + 1e-3 for t in plain[1000:]))

    def test_a_puzzle_has_one_answer(self):
        seen = set()
        for puzzle in range(12):
            right = [g for g in ("faster", "slower", "same") if python(self.PROGRAM, "--hidden", puzzle, "--guess", g)[0] == 0]
            self.assertEqual(len(right), 1, puzzle)
            seen.add(right[0])
        self.assertEqual(len(seen), 3)

    def test_bad_flags_are_refused(self):
        for arguments in (("--plus", "nan"), ("--plus", "-60"), ("--guess", "same"), ("--record", "no_such_file"), ("--record", __file__),
                          ("--hidden", 7, "--plus", 5)):
            self.assertEqual(python(self.PROGRAM, *arguments)[0], 2, arguments)

    def test_a_record_without_a_process_is_refused_in_words(self):
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "none.json"
            for text in ('{"runs": []}', "[]", '{"runs": [{"tenths_ns": [1e6]}]}'):
                record.write_text(text)
                code, out = python(self.PROGRAM, "--record", record)
                self.assertEqual(code, 2, text)
                self.assertIn("expected a record of", out, text)


# A stepscope whose device is the records: `kernels` prints that of its op, `profile` writes the profile of the trainer.
FAKE = """#!/bin/sh
case "$1" in
  kernels) cat "{learn}/measured/mixed-adamw.json" ;;
  profile) while [ "$1" != --out ]; do shift; done; cp "{profile}" "$2" ;;
  *) exit 2 ;;
esac
"""


class Records(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(LEARN, self.folder / "docs" / "learn")
        self.program = self.folder / "stepscope"
        self.program.write_text(FAKE.format(learn=LEARN, profile=ROOT / "python" / "measured" / "profile_ours.json"))
        self.program.chmod(0o755)
        measured = self.folder / "docs" / "learn" / "measured"
        for patch in (mock.patch.object(measure, "MEASURED", measured), mock.patch.object(tables, "HERE", measured.parent)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_one_call_fills_what_was_not_run(self):
        chapter = (LEARN / "6-adamw.md").read_text(encoding="utf-8")
        self.assertIn("<!-- table update.json -->", chapter)
        missing = ["adamw.json", "grad_norm.json", "mixed-grad_norm.json", measure.UPDATE]
        for record in missing:
            (self.folder / "docs" / "learn" / "measured" / record).unlink(missing_ok=True)
        code, out = quietly(measure.main, ["--program", str(self.program)])
        self.assertEqual(code, 0, out)
        for record in missing:
            self.assertIn(record, out)
            self.assertNotIn("ot run", tables.table(record))
        made = json.loads((measure.MEASURED / measure.UPDATE).read_text())["rungs"]
        self.assertEqual([r["rung"] for r in made], list(measure.RUNGS))
        self.assertEqual(tables.table(measure.UPDATE).count("| 936 | 29.78 |"), len(measure.RUNGS))
        self.assertEqual(quietly(measure.main, ["--list"]), (0, ""))  # nothing is left

    def test_only_a_call_without_flags_writes_pages(self):
        page = tables.HERE / "2-layernorm.md"
        stale = page.read_text(encoding="utf-8").replace("| `thread_per_row` |", "| `old` |")
        page.write_text(stale, encoding="utf-8")
        for flags, code in ((["--check"], 1), (["--chek"], 2), (["--help"], 0)):
            self.assertEqual(quietly(tables.main, flags)[0], code)
            self.assertEqual(page.read_text(encoding="utf-8"), stale, flags)
        self.assertEqual(quietly(tables.main, []), (0, ""))
        self.assertIn("| `thread_per_row` |", page.read_text(encoding="utf-8"))

    def test_a_program_that_fails_leaves_no_record(self):
        (measure.MEASURED / "adamw.json").unlink(missing_ok=True)
        self.program.write_text("#!/bin/sh\nexit 3\n")
        self.assertEqual(quietly(measure.main, ["--program", str(self.program), "adamw.json"])[0], 3)
        self.assertFalse((measure.MEASURED / "adamw.json").exists())
        self.assertEqual(quietly(measure.main, ["no_such.json"])[0], 2)
        self.assertEqual(quietly(measure.main, ["--program", str(self.folder / "no_program"), "adamw.json"])[0], 2)

    def test_a_record_that_fails_does_not_stop_the_others(self):
        for record in ("adamw.json", "grad_norm.json"):
            (measure.MEASURED / record).unlink(missing_ok=True)
        self.program.write_text(self.program.read_text().replace("kernels) ", "kernels) [ $2 != adamw ] || exit 4; "))
        code, out = quietly(measure.main, ["--program", str(self.program), "adamw.json", "grad_norm.json"])
        self.assertEqual(code, 4, out)
        self.assertIn("exit 4; its record is not made", out)
        self.assertEqual([(measure.MEASURED / r).exists() for r in ("adamw.json", "grad_norm.json")], [False, True])

    def test_records_can_be_written_elsewhere(self):
        before = {p.name: p.read_bytes() for p in measure.MEASURED.glob("*.json")}
        out = self.folder / "out"
        arguments = ["--program", str(self.program), "--out", str(out), "mixed-adamw.json", measure.UPDATE]
        self.assertEqual(quietly(measure.main, arguments)[0], 2)  # no such folder
        out.mkdir()
        self.assertEqual(quietly(measure.main, arguments)[0], 0)
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["mixed-adamw.json", measure.UPDATE])
        self.assertEqual({p.name: p.read_bytes() for p in measure.MEASURED.glob("*.json")}, before)

    def test_the_oldest_rung_of_the_mixed_trainer_names_every_slot_of_the_update(self):
        # What a rung does not name is the default, so a slot that is new changes the older rungs in silence.
        source = (ROOT / "mixed" / "variants.cpp").read_text(encoding="utf-8")
        of_update = set(re.findall(r'Row\{\.slot = "(\w+)",(?:(?!Row\{).)*?"optimizer/(?:adamw|grad_norm)"', source, re.S))
        self.assertIn("masters", of_update)
        self.assertEqual({v.split("=")[0] for v in measure.RUNGS["per_tensor"][1].split()}, of_update - {"grad_norm"})

    def test_a_rung_that_has_its_own_profile_is_predicted_with_its_own_ceiling(self):
        profile = json.loads((ROOT / "python" / "measured" / "profile_ours.json").read_text())
        profile["ceilings"]["copy_bytes_per_s"] = 1e12
        row = measure.update_row("all_tensors", profile)
        (measure.MEASURED / measure.UPDATE).write_text(json.dumps({"rungs": [row]}))
        self.assertIn("| `all_tensors` | mixed | 30 | 3734 |", tables.table(measure.UPDATE))

    def test_bytes_by_hand(self):
        self.assertEqual(measure.bytes_of_rung("fp32_all_tensors"), (28, 4))
        self.assertEqual(measure.bytes_of_rung("all_tensors"), (30, 4))
        self.assertEqual(measure.bytes_of_rung("split_masters"), (28.25, 4))
        adamw, norm = measure.bytes_of_rung("bf16_gradients")
        self.assertAlmostEqual(adamw, 26.9, places=1)  # docs/study/mixed-next.md
        self.assertAlmostEqual(norm, 2.6, places=1)
        with_wte, its_norm = measure.bytes_of_rung("bf16_wte")
        self.assertAlmostEqual(adamw - with_wte, 2 * 50304 * 768 / 124475904)
        self.assertAlmostEqual(norm - its_norm, 2 * 50304 * 768 / 124475904)
        self.assertEqual(measure.bytes_of_rung("split_moments"), (with_wte - 4, its_norm))

    def test_every_record_of_kernels_was_made_by_its_command(self):
        for record, arguments in measure.KERNELS.items():
            file, words = LEARN / "measured" / record, arguments.split()
            self.assertEqual(words[2], "mixed" if record.startswith("mixed-") else "fp32", record)
            self.assertIn(words[0], record)
            if not file.exists():
                continue
            d = json.loads(file.read_text())
            batch = int(words[words.index("-b") + 1]) if "-b" in words else 4
            rounds = int(words[words.index("--rounds") + 1]) if "--rounds" in words else 50
            self.assertEqual((d["rows"][0]["op"], d["trainer"], d["batch_size"], d["rounds"], d["ladder"], d["seed"]),
                             (words[0], words[2], batch, rounds, "--ladder" in words, 7), record)


@unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
class Softmax(unittest.TestCase):
    def exit_of(self, merged):
        source = (LEARN / "exercises" / "softmax.cpp").read_text()
        begins = "return {std::max(a.largest, b.largest), a.sum + b.sum};"
        self.assertIn(begins, source)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "softmax.cpp").write_text(source.replace(begins, merged or begins))
            subprocess.run(["c++", "-O2", "-std=c++20", "softmax.cpp", "-o", "softmax"], cwd=folder, check=True)
            return subprocess.run(["./softmax"], cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode

    def test_the_answer_of_the_page_is_right_and_the_start_is_not(self):
        page = (LEARN / "5-classifier.md").read_text(encoding="utf-8")
        answer = page[page.index("`const float m = ") + 1:]
        self.assertEqual(self.exit_of(None), 1)
        self.assertEqual(self.exit_of(answer[:answer.index("`")]), 0)


if __name__ == "__main__":
    unittest.main()
