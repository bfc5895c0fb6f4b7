"""`stepscope eval` beside PyTorch on one checkpoint and one set (python/tools/evaluate.py): trained here by the CPU reference, asked here."""
import json
import pathlib
import random
import re
import struct
import subprocess
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import evaluate  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
VALIDATION_BYTES = 106657  # of tinyshakespeare.txt, by decoding the 32,768 tokens of llm.c's tiny_shakespeare_val.bin

# A language of twelve words whose sentences have one order.
PARTS = ["the one", "cat dog hen", "sees likes", "the one", "old red", "hat hill"]
MERGES = ["t h", "th e", "o n", "on e", "c a", "ca t", "h e", "l i", "Ġ the", "Ġ one"]
V, C, L, NH, T = 256 + len(MERGES) + 1, 32, 1, 2, 64


def text(sentences, seed):
    draw = random.Random(seed)
    return "\n".join(" ".join(draw.choice(part.split()) for part in PARTS) for _ in range(sentences)) + "\n"


def test_the_commands_that_are_shown_ask_of_no_text_that_is_trained_on():
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    shown = [re.search(r"evaluate\.py questions .*--bytes 0:(\d+) ", where)[1] for where in (evaluate.__doc__, page)]
    assert shown[0] == shown[1] and int(shown[0]) <= VALIDATION_BYTES


def test_questions_are_asked_without_pytorch(tmp_path):
    (tmp_path / "text").write_text(text(60, 2))
    alone = ("import runpy, sys; sys.modules['torch'] = None; sys.path.insert(0, %r); sys.argv[0] = %r; runpy.run_path(sys.argv[0], run_name='__main__')"
             % (str(pathlib.Path(evaluate.__file__).parent), evaluate.__file__))

    def run(*arguments):
        return subprocess.run([sys.executable, "-c", alone, *map(str, arguments)], capture_output=True, text=True, check=False)

    asked = run("questions", tmp_path / "text", "--count", 3)
    assert (asked.returncode, asked.stderr) == (0, "") and len(asked.stdout.splitlines()) == 3
    refused = run("compare", "a", "b", "--program", "p")
    assert refused.returncode == 3 and "evaluate.py: compare needs PyTorch" in refused.stderr and "Traceback" not in refused.stderr


def write_checkpoint(path):
    padded, generator = -(-V // 128) * 128, torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator) * 0.02

    wte = normal(padded, C)
    wte[V:] = 0
    block = [torch.ones(L, C), torch.zeros(L, C), normal(L, 3 * C, C), torch.zeros(L, 3 * C), normal(L, C, C), torch.zeros(L, C),
             torch.ones(L, C), torch.zeros(L, C), normal(L, 4 * C, C), torch.zeros(L, 4 * C), normal(L, C, 4 * C), torch.zeros(L, C)]
    tensors = [wte, normal(T, C), *block, torch.ones(C), torch.zeros(C)]
    header = struct.pack("<256i", evaluate.CHECKPOINT, 3, T, V, L, NH, C, padded, *[0] * 248)
    path.write_bytes(header + b"".join(t.numpy().tobytes() for t in tensors))


@pytest.fixture(scope="module")
def made(tmp_path_factory, program):
    """(checkpoint, set) that `stepscope train` and `data --eval-set` made."""
    folder = tmp_path_factory.mktemp("evaluation")
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n", encoding="utf-8")
    (folder / "train.txt").write_text(text(2000, 1))
    write_checkpoint(folder / "first.bin")
    asked = evaluate.questions(text(60, 2), 24, context_lines=1)
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in asked))

    def run(*arguments):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, cwd=folder, check=False)
        if "ICU" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr

    run("data", "train.txt", "--vocab", "vocab.bpe", "--end-of-text", "none", "--out", "train.bin")
    run("data", "--eval-set", "hellaswag", "questions.jsonl", "--vocab", "vocab.bpe", "--out", "set.bin")
    run("train", "--trainer", "reference", "--model", "first.bin", "--data", "train.bin", "-b", "8", "-t", "64", "--steps", "60", "--lr", "1e-2",
        "--checkpoints", "kept")
    return folder / "kept" / "step-00000060" / "model.bin", folder / "set.bin"


def test_the_reference_answers_as_pytorch_does(made, program, tmp_path, capsys):
    assert evaluate.main(["compare", *map(str, made), "--program", program, "--trainers", "reference", "--device", "cpu",
                          "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "evaluation.json").read_text())
    rows = {r["arm"]: r for r in record["rows"]}
    assert record["examples"] == 24 and rows["PyTorch fp64"]["correct"] > 12, "a coin with four sides has 6 of 24"
    assert rows["reference"]["correct"] == rows["PyTorch fp64"]["correct"] and rows["reference"]["ok"] is True
    assert 0 < rows["reference"]["error"] < 1e-5
    assert rows["PyTorch fp32"]["error"] < 1e-5 < rows["PyTorch bf16 autocast"]["error"] < 0.1
    assert "reference" in capsys.readouterr().out


def test_losses_that_are_off_are_outside(made, program, monkeypatch, capsys):
    real = evaluate.eval_by

    def off(*arguments):
        found, result = real(*arguments)
        found[3][2] += 1e-3
        return found, result

    monkeypatch.setattr(evaluate, "eval_by", off)
    assert evaluate.main(["compare", *map(str, made), "--program", program, "--trainers", "reference", "--device", "cpu"]) == 1
    assert "OUTSIDE" in capsys.readouterr().out


def test_an_answer_that_no_rounding_explains_is_outside():
    arms = {"fp64": [[1.0, 2.0], [1.0, 1.0001]], "fp32": [[1.0, 2.0], [1.0, 1.0001]], "autocast": [[1.002, 2.0], [1.0, 1.0001]]}
    assert evaluate.row_of("mixed", [[1.003, 2.0], [1.0002, 1.0001]], arms, [0, 0])["other_answers"] == [{"index": 1, "margin": pytest.approx(1e-4)}]
    assert evaluate.row_of("mixed", [[1.003, 2.0], [1.0002, 1.0001]], arms, [0, 0])["ok"] is True
    assert evaluate.row_of("fp32", [[1.0, 2.0], [1.0002, 1.0001]], arms, [0, 0])["ok"] is False
    assert evaluate.row_of("mixed", [[float("nan"), 2.0], [1.0, 1.0001]], arms, [0, 0])["ok"] is False


def of_set(*examples):
    """The bytes of an evaluation set of (label, context, completions)."""
    words, longest = [], 0
    for i, (label, context, endings) in enumerate(examples):
        body = [i, label, len(endings), len(context), *context, *(word for e in endings for word in (len(e), *e))]
        words += [65535, 2 * (len(body) + 2), *body]
        longest = max(longest, 2 * (len(body) + 2))
    return struct.pack("<256i", evaluate.SET, 1, longest, len(examples), *[0] * 252) + struct.pack(f"<{len(words)}H", *words)


ENDINGS = [[5, 6], [7, 8, 9], [1], [2, 3]]


@pytest.mark.parametrize("checkpoint, asked, sentence", [
    ("none.bin", "set.bin", "none.bin: No such file or directory"),
    ("first.bin", "none.bin", "none.bin: No such file or directory"),
    (".", "set.bin", "Is a directory"),
    ("set.bin", "set.bin", "set.bin: begins with .20240522, 1., expected an fp32 checkpoint of llm.c"),
    ("first.bin", "first.bin", "expected an evaluation set"),
    ("short.bin", "set.bin", "short.bin: [0-9]+ parameters, expected [0-9]+ of its shape"),
    ("cut.bin", "set.bin", "cut.bin: [0-9]+ bytes behind the header, which are no whole number of its elements"),
    ("header.bin", "set.bin", "header.bin: 100 bytes, expected an fp32 checkpoint of llm.c, whose header has 1024"),
    ("shape.bin", "set.bin", "shape.bin: its header has the shape .* 0 heads, .* which no GPT-2 has"),
    ("first.bin", of_set(), "given.bin: no example, expected one or more"),
    ("first.bin", of_set((0, list(range(64)), ENDINGS)), "given.bin: example 0 needs 66 positions, the checkpoint has 64"),
    ("first.bin", of_set((0, [1], ENDINGS), (1, [2], [[3], [V]])), f"given.bin: example 1 has token {V}, the checkpoint's vocabulary ends with {V - 1}"),
    ("first.bin", of_set((0, [1], ENDINGS))[:-2], "given.bin: ends within example 0"),
    ("first.bin", of_set((7, [1], ENDINGS)), "given.bin: example 0 is none"),
    ("first.bin", of_set((0, [1], ENDINGS)), "--program none: no program there"),
])
def test_wrong_files_are_named_and_the_exit_is_2(tmp_path, monkeypatch, capsys, checkpoint, asked, sentence):
    write_checkpoint(tmp_path / "first.bin")
    whole = (tmp_path / "first.bin").read_bytes()
    for name, written in (("set", of_set((0, [1], ENDINGS))), ("short", whole[:-4]), ("cut", whole[:-3]), ("header", whole[:100]),
                          ("shape", whole[:20] + struct.pack("<i", 0) + whole[24:])):
        (tmp_path / f"{name}.bin").write_bytes(written)
    if isinstance(asked, bytes):
        (tmp_path / "given.bin").write_bytes(asked)
        asked = "given.bin"
    monkeypatch.chdir(tmp_path)
    assert evaluate.main(["compare", checkpoint, asked, "--program", "none", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and re.fullmatch(f"evaluate.py: .*{sentence}.*\n", said.err), said.err


@pytest.mark.parametrize("arguments, sentence", [
    (["questions", "text", "--bytes", "5"], "--bytes: 5: expected FROM:TO"),
    (["questions", "text", "--bytes", "a:b"], "--bytes: a:b: expected FROM:TO"),
    (["questions", "text", "--count", "-3"], "--count: -3: expected a whole number of at least 1"),
    (["questions", "none"], "none: No such file or directory"),
    (["questions", "text"], "text: no question in this part of it"),
    (["compare", "a", "b", "--program", "p", "--trainers", "fp32,fp8"], "--trainers fp8: expected reference, fp32, mixed"),
    (["compare", "a", "b", "--program", "p", "--out", "none"], "--out none: no such folder"),
    (["compare", "a", "b", "--program", "p", "--device", "tpu"], "invalid choice: 'tpu'"),
])
def test_wrong_arguments_are_named_and_the_exit_is_2(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("one line\nof few words\n")
    try:
        code = evaluate.main(arguments)
    except SystemExit as e:  # argparse's
        code = e.code
    said = capsys.readouterr()
    assert code == 2 and said.out == "" and sentence in said.err


@pytest.mark.parametrize("exit_code", [1, 2])
def test_a_program_that_fails_is_told_from_a_program_that_refuses(tmp_path, capsys, exit_code):
    write_checkpoint(tmp_path / "first.bin")
    (tmp_path / "set.bin").write_bytes(of_set((0, [1], ENDINGS)))
    (tmp_path / "program").write_text(f"#!/bin/sh\nexit {exit_code}\n")
    (tmp_path / "program").chmod(0o755)
    arguments = ["compare", str(tmp_path / "first.bin"), str(tmp_path / "set.bin"), "--program", str(tmp_path / "program"), "--device", "cpu"]
    if exit_code == 2:
        assert evaluate.main(arguments) == 2 and "program eval --trainer reference: it takes these arguments" in capsys.readouterr().err
    else:
        with pytest.raises(SystemExit, match="program eval --trainer reference: exit 1"):
            evaluate.main(arguments)
