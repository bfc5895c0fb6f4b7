"""`stepscope data --export` and `--import` against transformers: what one writes the other loads. Nothing is downloaded."""
import pathlib
import subprocess

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"


@pytest.fixture(scope="module")
def data(program):
    def run(*arguments):
        subprocess.run([program, "data", *arguments], check=True, capture_output=True, text=True)

    return run


def golden_batch():
    """llm.c's debug state: header, x, y, logits (B, T, V), loss."""
    header = np.fromfile(GOLDEN / "tiny.bin", dtype=np.int32, count=256)
    state = GOLDEN / "tiny_debug_state.bin"
    b, t = np.fromfile(state, dtype=np.int32, count=4)[2:4]
    n, v = int(b * t), int(header[3])
    xy = np.fromfile(state, dtype=np.int32, count=2 * n, offset=1024)
    floats = np.fromfile(state, dtype=np.float32, count=n * v + 1, offset=1024 + 8 * n)
    x, y = torch.from_numpy(xy).long().view(2, b, t)
    return x, y, torch.from_numpy(floats[:-1].copy()).view(b, t, v), float(floats[-1])


def same_values(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_an_exported_folder_loads_and_has_the_losses_of_the_golden_batch(data, tmp_path):
    x, y, logits, loss = golden_batch()
    data("--export", GOLDEN / "tiny.bin", "--out", tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    # In training mode: the exported model has no dropout, as ours has none.
    out = model.train()(x).logits
    torch.testing.assert_close(out, logits, rtol=1e-4, atol=1e-5)
    assert torch.nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()).item() == pytest.approx(loss, rel=1e-5)


def test_a_bf16_checkpoint_keeps_its_type(data, tmp_path):
    data("--export", GOLDEN / "tiny.bin", "--out", tmp_path / "fp32")
    data("--import", tmp_path / "fp32", "--out", tmp_path / "bf16.bin", "--bf16")
    data("--export", tmp_path / "bf16.bin", "--out", tmp_path / "bf16")
    wide, narrow = (transformers.AutoModelForCausalLM.from_pretrained(tmp_path / f, dtype="auto") for f in ("fp32", "bf16"))
    assert wide.dtype == torch.float32 and narrow.dtype == torch.bfloat16
    same_values({k: v.bfloat16() for k, v in wide.state_dict().items()}, dict(narrow.state_dict()))


@pytest.mark.parametrize("size", ["1MB", "20KB", "1KB"])
def test_however_transformers_splits_a_model_it_comes_back(data, tmp_path, size):
    torch.manual_seed(0)
    settings = dict(vocab_size=67, n_positions=16, n_layer=2, n_head=4, n_embd=32, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings))
    model.save_pretrained(tmp_path / "theirs", max_shard_size=size)
    files = len(list((tmp_path / "theirs").glob("*.safetensors")))
    assert (files == 1) == (size == "1MB"), files
    data("--import", tmp_path / "theirs", "--out", tmp_path / "c.bin")
    data("--export", tmp_path / "c.bin", "--out", tmp_path / "ours")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert back.config.n_head == 4
    same_values(dict(model.state_dict()), dict(back.state_dict()))
