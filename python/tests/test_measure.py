"""The trainings of python/tools/measure.py: what they read, and that arms of one seed see the same."""
import argparse
import pathlib
import struct
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import measure  # noqa: E402
from stepscope.models import GPT, GPTConfig  # noqa: E402


OPS = "layernorm=default,gelu=default,attention=default,loss=default"  # AdamW's kernel has no stand-in on a CPU


@pytest.fixture
def shard(tmp_path):
    (tmp_path / "tokens.bin").write_bytes(struct.pack("<256i", 20240520, 1, 100, *[0] * 253) + struct.pack("<100H", *range(100)))
    return tmp_path / "tokens.bin"


def arguments(shard, **more):
    return argparse.Namespace(**{**dict(device="cpu", model="gpt", batch=2, tokens=8, steps=11, seeds=2, layers=1, variants=OPS, data=shard), **more})


def test_passages_are_the_shards_tokens_each_once_before_any_twice(shard):
    rows = measure.passages(arguments(shard, steps=7), torch.Generator().manual_seed(0)).tolist()
    assert all(row == list(range(row[0], row[0] + 9)) for row in rows)
    assert sorted(row[0] for row in rows[:12]) == list(range(0, 92, 8)) and len(rows) == 14


def test_arms_of_a_seed_train_on_the_same_and_differ_by_their_ops_alone(shard, monkeypatch, capsys):
    monkeypatch.setattr(measure, "GPT", lambda config: GPT(GPTConfig(vocab_size=100, block_size=8, n_layer=1, n_head=2, n_embd=16)))
    answer = measure.losses(arguments(shard))
    own, again, ours = (answer["curves"][arm] for arm in ("pytorch", "again", "replaced"))
    assert own == again and own[0] != own[1] and [len(c) for c in ours] == [11, 11]
    assert ours != own and torch.tensor(ours).sub(torch.tensor(own)).abs().max() < 0.05
    assert answer["data"] == "tokens.bin" and answer["parts_outside_the_spread"] in ([], [0])
    assert "layernorm" in capsys.readouterr().out, "what was replaced is named"


def test_hugging_faces_model_is_given_the_targets_already_shifted(shard, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

    def model(arguments, seed):
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=100, n_positions=8, n_layer=1, n_head=2, n_embd=16, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
            bos_token_id=None, eos_token_id=None)).train()

    monkeypatch.setattr(measure, "model_of", model)
    data = measure.passages(arguments(shard), torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(None, 0)(data[:2, :-1]).logits
    wanted = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), data[:2, 1:].flatten()).item()
    for replaced in (False, True):
        found, ms = measure.curve_of(arguments(shard, model="hf"), 0, data, replaced)
        assert found[0] == pytest.approx(wanted, abs=1e-3) and len(found) == 11 and ms > 0


@pytest.mark.parametrize("given, sentence", [
    (["--variants", "layernorm"], "--variants layernorm: expected OP=VARIANT"),
    (["--variants", "layernorm=nonsense"], "has no variant 'nonsense'"),
    (["--variants", "softmax=off"], "'softmax' is no op"),
    (["--data", "/none"], "--data /none: No such file or directory"),
    (["--data", "."], "--data .: Is a directory"),
    (["--data", "tokens.bin"], "--data tokens.bin: 100 tokens, expected more than the 1024 of a row"),
    (["--data", "set.bin"], "--data set.bin: begins with [20240522, 1], expected a token shard"),
    (["--data", "short.bin"], "--data short.bin: "),
    (["--seeds", "1"], "--seeds 1: expected at least 2 for losses"),
    (["--steps", "0"], "--steps 0: expected at least 1"),
    (["--out", "none"], "--out none: no such folder"),
])
def test_wrong_arguments_are_named_before_anything_runs(shard, monkeypatch, capsys, given, sentence):
    monkeypatch.chdir(shard.parent)
    (shard.parent / "set.bin").write_bytes(struct.pack("<256i", 20240522, 1, *[0] * 254))
    (shard.parent / "short.bin").write_bytes(b"abc")
    monkeypatch.setattr(measure, "limited", lambda *a: pytest.fail("a part ran"))
    with pytest.raises(SystemExit) as stopped:
        measure.main(["losses", "--device", "cpu", *given])
    said = capsys.readouterr()
    assert stopped.value.code == 2 and said.out == "" and sentence in said.err


@pytest.mark.parametrize("variants, replaced", [("gelu=off", {"attention", "layernorm", "loss"}), ("gelu=off,loss=one_read", {"loss"})])
def test_an_op_that_is_off_stays_pytorchs_in_every_part(monkeypatch, capsys, variants, replaced):
    monkeypatch.setattr(measure, "GPT", lambda config: GPT(GPTConfig(vocab_size=50257, block_size=8, n_layer=1, n_head=2, n_embd=16)))
    measure.main(["check", "--device", "cpu", "--batch", "1", "--tokens", "8", "--variants", variants])
    shown = capsys.readouterr().out.split("\n\n")[0]  # the table of what was replaced
    assert {op for op in ("attention", "gelu", "layernorm", "loss") if op in shown.split()} == replaced
