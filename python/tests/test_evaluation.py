"""`stepscope eval` beside PyTorch on one checkpoint and one set (python/tools/evaluate.py): trained here by the CPU reference, asked here."""
import json
import pathlib
import random
import struct
import subprocess
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import evaluate  # noqa: E402

# A language of twelve words whose sentences have one order.
PARTS = ["the one", "cat dog hen", "sees likes", "the one", "old red", "hat hill"]
MERGES = ["t h", "th e", "o n", "on e", "c a", "ca t", "h e", "l i", "Ġ the", "Ġ one"]
V, C, L, NH, T = 256 + len(MERGES) + 1, 32, 1, 2, 64


def text(sentences, seed):
    draw = random.Random(seed)
    return "\n".join(" ".join(draw.choice(part.split()) for part in PARTS) for _ in range(sentences)) + "\n"


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


def test_other_files_are_refused(made, tmp_path):
    checkpoint, asked = made
    for arguments in ((asked, asked), (checkpoint, checkpoint)):
        with pytest.raises(SystemExit, match="expected"):
            evaluate.main(["compare", *map(str, arguments), "--program", "none", "--device", "cpu"])
    short = tmp_path / "short.bin"
    short.write_bytes(checkpoint.read_bytes()[:-4])
    with pytest.raises(SystemExit, match="parameters, expected"):
        evaluate.read_checkpoint(short)
