"""The tables of docs/python.md are those of the records."""
import json
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
page = pytest.importorskip("page")
import profiles  # noqa: E402


def test_every_table_is_what_its_records_say(capsys):
    assert page.main(["--check"]) == 0, capsys.readouterr().out
    assert sum(len(page.MARK.findall(p.read_text(encoding="utf-8"))) for p in page.PAGES) >= 2


def test_a_changed_figure_is_found(tmp_path, monkeypatch):
    text = page.PAGES[0].read_text(encoding="utf-8")
    copy = page.ROOT / "docs" / "python.md"
    changed = tmp_path / "python.md"
    changed.write_text(re.sub(r"\| \d\.\d{3} \[", "| 9.999 [", text, count=1), encoding="utf-8")
    assert changed.read_text(encoding="utf-8") != text and copy.read_text(encoding="utf-8") == text
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGES", [changed])
    assert page.main(["--check"]) == 1
    assert page.main([]) == 0 and changed.read_text(encoding="utf-8") == text


def test_a_check_is_cut_to_its_worst_tensors():
    rows = [{"op": "gelu", "tensor": "out", "site": str(i), "error": e, "budget": 1.0} for i, e in enumerate((0.1, 0.9, 0.5))]
    rows += [{"op": "gelu", "tensor": "dx", "site": "nan", "error": float("inf"), "budget": 1.0}]
    cut = page.reduced({"part": "check", "rows": rows})
    assert [(r["tensor"], r["site"]) for r in cut["rows"]] == [("out", "1"), ("dx", "nan")] and cut["compared"] == 4


def test_a_profile_keeps_the_kernels_that_a_page_may_name():
    kernel = {"name": "k", "pass": "forward", "op": "loss", "launches": 1, "time_ns": 3e5, "dram_read_bytes": 1.0}
    cut = page.reduced({"schema": "s", "ops": [], "layers": [1], "launches": [1], "missing": [], "sources": {}, "ceilings": {"copy_bytes_per_s": 1.0},
                        "kernels": [kernel, {**kernel, "time_ns": 1e5}]})
    assert cut["kernels"] == [kernel] and cut["layers"] == cut["launches"] == [] and "sources" not in cut
    assert cut["ceilings"] == {"copy_bytes_per_s": 1.0} and [m["name"] for m in cut["missing"]] == ["record_reduced"]
    assert not page.LEFT_OUT["detail"].startswith("ceilings")


def test_a_kept_profile_says_nothing_of_its_machines_folders():
    command = "/a/b/bin/stepscope profile --by op -o /tmp/x.1/profile_eager.json -- python3 /a/python/tools/measure.py step --batch 16"
    cut = page.reduced({"schema": "s", "kernels": [], "missing": [], "run": {"command": command, "steps": 3}, "collection": {"program": "python3 /a/step.py"}})
    assert cut["run"] == {"command": "stepscope profile --by op -o profile_eager.json -- python3 python/tools/measure.py step --batch 16", "steps": 3}
    assert cut["collection"] == {"program": "python3 step.py"}
    assert page.without_folders("build/release/bin/stepscope train --data a/b.bin") == "build/release/bin/stepscope train --data a/b.bin"


def test_a_table_whose_record_is_not_there_says_what_makes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RECORDS", tmp_path)
    for kind, names in (("bench", "bench.json"), ("profiles", "profile_a_now.json profile_b_now.json")):
        assert page.section(kind, names) == f"Not measured yet: {', '.join(names.split())}, which `tests/device/pytorch.sh` makes."


def test_a_short_trainings_last_losses_are_averaged_over_as_many_as_there_are():
    record = {"device": "GPU", "torch": "2", "date": "today", "batch": 1, "tokens": 2,
              "curves": {"pytorch": [[4.0] * 10, [5.0] * 10], "replaced": [[4.5] * 10, [4.5] * 10]}}
    assert "| 0 | 4.0000 | 4.5000 | 4.0000 | 4.5000 |" in page.losses(record)


def test_the_record_of_an_evaluation_becomes_a_table():
    row = {"arm": "PyTorch fp64", "correct": 7, "error": 0.0, "mean_error": 0.0, "budget": None, "other_answers": [], "ok": None}
    far = {**row, "arm": "mixed", "error": 0.03, "mean_error": 0.01, "budget": 0.02, "other_answers": [{"index": 3, "margin": 0.004}], "ok": False}
    shown = page.evaluation({"device": "GPU", "torch": "2", "date": "today", "examples": 9, "rows": [row, far]})
    assert "GPU, PyTorch 2, today, 9 questions." in shown
    assert "| PyTorch fp64 | 7 | 0.0e+00 | 0.0e+00 |  | none |  |" in shown
    assert "| mixed | 7 | 1.0e-02 | 3.0e-02 | 2.0e-02 | 1, nearest by 4.0e-03 | **outside** |" in shown


def exit_of(main, arguments):
    try:
        return main(arguments)
    except SystemExit as e:  # argparse's
        return e.code


def test_wrong_arguments_and_files_are_named_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    shown, records = tmp_path / "page.md", tmp_path / "records"
    text = "<!-- measured bench bench.json -->\nold\n<!-- end -->\n"
    shown.write_text(text)
    for name, value in (("PAGES", [shown]), ("RECORDS", records), ("ROOT", tmp_path)):
        monkeypatch.setattr(page, name, value)
    monkeypatch.chdir(tmp_path)
    for name, content in (("good.json", '{"part": "bench"}'), ("cut.json", "{"), ("list.json", "[]"), ("other.json", '{"part": "check"}'),
                          ("x.json.gz", "x")):
        (tmp_path / name).write_text(content)
    for arguments, sentence in ((["--foo"], "unrecognized arguments: --foo"), (["bench.json"], "unrecognized arguments: bench.json"),
                                (["--take"], "expected at least one"),
                                (["--take", "good.json", "/none/a.json"], "page.py: /none/a.json: No such file or directory"),
                                (["--take", "good.json", "cut.json"], "page.py: cut.json: Expecting"),
                                (["--take", "list.json"], "list.json: no JSON object"),
                                (["--take", "good.json", "other.json"], "other.json: no record (KeyError: 'rows')"),
                                (["--take", "x.json.gz"], "x.json.gz: Not a gzipped file")):
        assert exit_of(page.main, arguments) == 2 and sentence in capsys.readouterr().err
    assert shown.read_text() == text and not records.exists()
    assert page.main(["--take", "good.json"]) == 0 and json.loads((records / "good.json").read_text()) == {"part": "bench"}
    (records / "bench.json").write_text("{")
    assert page.main(["--check"]) == 2 and "bench.json: Expecting" in capsys.readouterr().err


def test_a_profile_that_cannot_be_read_is_named(tmp_path, capsys):
    (tmp_path / "profile_a.json").write_text("{}")
    for arguments, sentence in (([], "the following arguments are required: FILE"), (["--foo"], "--foo"),
                                (["/none.json"], "profiles.py: /none.json: No such file")):
        assert exit_of(profiles.main, [str(tmp_path / "profile_a.json"), *arguments] if arguments else []) == 2
        said = capsys.readouterr()
        assert sentence in said.err and said.out == ""
    assert profiles.main([str(tmp_path / "profile_a.json")]) == 0 and capsys.readouterr().out.startswith("| ms per step | a |")
