"""GPT-2 of Hugging Face, with random weights; nothing is downloaded. On the CPU, with fake kernels."""
import copy
import pickle

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import stepscope  # noqa: E402
from test_profile import FORWARD, Sink, mirrored, one_step  # noqa: E402,F401


def gpt2(**changes):
    torch.manual_seed(0)
    settings = dict(vocab_size=67, n_positions=16, n_layer=2, n_head=2, n_embd=32, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**settings, **changes})).train()


@pytest.fixture
def labelled():
    tokens = torch.randint(67, (2, 16), generator=torch.Generator().manual_seed(5))
    return {"input_ids": tokens, "labels": tokens.roll(3, 1)}


def test_every_op_of_gpt2_is_replaced_and_computes_the_same(labelled):
    model = gpt2()
    before = model(**labelled)
    before.loss.backward()
    own = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    report = stepscope.replace(model)
    after = model(**labelled)
    after.loss.backward()
    assert report.not_replaced == [] or {s.name for s in report.not_replaced} == {"config.use_cache"}
    assert [s.op for s in report.replaced].count("attention") >= 2 and [s.op for s in report.replaced].count("loss") == 1
    torch.testing.assert_close(after.loss, before.loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(after.logits, before.logits, rtol=1e-4, atol=1e-5)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, own[name], rtol=1e-3, atol=1e-6)
    assert stepscope.check(model, labelled).ok


def test_undo_gives_loss_attention_and_cache_back(labelled):
    model = gpt2()
    before = model(**labelled).loss
    report = stepscope.replace(model)
    assert model.config.use_cache is False
    report.undo()
    assert model.config.use_cache is True and type(model.transformer.h[0].attn).__name__ == "GPT2Attention"
    assert torch.equal(model(**labelled).loss, before)


def test_copies_keep_the_ops_and_a_pickle_is_refused_but_inside_off(labelled):
    model = gpt2()
    report = stepscope.replace(model)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(**labelled).loss, model(**labelled).loss) and type(twin.transformer.ln_f) is type(model.transformer.ln_f)
    with pytest.raises(stepscope.Refused, match="cannot be pickled; do it inside `with report.off"):
        pickle.dumps(model)
    with report.off():
        back = pickle.loads(pickle.dumps(model))
    assert type(back.transformer.ln_f) is torch.nn.LayerNorm and back.config.use_cache is True
    torch.testing.assert_close(back(**labelled).loss, model(**labelled).loss)


def test_a_mask_or_a_cache_is_refused_not_ignored(labelled):
    model = gpt2()
    report = stepscope.replace(model)
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[0, :4] = 0
    with pytest.raises(stepscope.Refused, match="a mask was asked for"):
        model(input_ids=labelled["input_ids"], attention_mask=mask)
    with pytest.raises(stepscope.Refused, match="key-value cache"):
        model(input_ids=labelled["input_ids"], use_cache=True)
    with pytest.raises(stepscope.Refused, match="cu_seq_lens_q was asked for"):
        model(input_ids=labelled["input_ids"], cu_seq_lens_q=torch.tensor([0, 8, 16]))
    attention, x = model.transformer.h[0].attn, torch.randn(1, 3, model.config.n_embd)
    for name in ("past_key_values", "cache"):  # the second name is that of transformers 5.24
        with pytest.raises(stepscope.Refused, match="key-value cache"):
            attention(x, **{name: object()})
    with report.off():
        model(input_ids=labelled["input_ids"], attention_mask=mask)


def test_positions_of_packed_sequences_are_refused_also_while_compiled():
    tokens, whole = torch.randint(67, (2, 16)), torch.arange(16)[None]
    packed = torch.arange(8).repeat(2)[None]
    model = gpt2()
    own = model(input_ids=tokens).logits
    report = stepscope.replace(model)
    torch._dynamo.reset()
    for run in (model, torch.compile(model, backend="eager")):
        torch.testing.assert_close(run(input_ids=tokens).logits, own)
        torch.testing.assert_close(run(input_ids=tokens, position_ids=whole).logits, own)
        with pytest.raises(stepscope.Refused, match="begin anew within a row"):
            run(input_ids=tokens, position_ids=packed)
    with report.off():
        assert (model(input_ids=tokens, position_ids=packed, use_cache=False).logits - own).abs().max() > 1e-2, "transformers masks them"
    report.undo()
    model(input_ids=tokens, position_ids=packed)


def test_dropout_and_other_scales_are_listed():
    why = {s.op: s.why for s in stepscope.replace(gpt2(attn_pdrop=0.1)).not_replaced if "attn" in s.name}
    assert "dropout of 0.1" in why["attention"]
    why = {s.op: s.why for s in stepscope.replace(gpt2(scale_attn_by_inverse_layer_idx=True)).not_replaced if "attn" in s.name}
    assert "scaled by" in why["attention"]


def test_ranges_of_a_step_are_those_of_our_trainers(labelled):
    model, sink = gpt2(), Sink()
    with stepscope.profile("step", sink=sink):
        model(**labelled).loss.backward()
    assert [p.removeprefix("step/") for p in sink.opened[1:]] == ["other/-/copy", *FORWARD, *mirrored(FORWARD)]


def test_a_compiled_replaced_model_computes_the_same(labelled):
    model = gpt2()
    stepscope.replace(model)
    eager = model(**labelled).loss
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")(**labelled).loss
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-6)


def test_under_compile_layernorm_and_loss_stay_and_are_listed(labelled):
    model = gpt2()
    before = model(**labelled).loss
    report = stepscope.replace(model, compiled=True)
    assert {s.op for s in report.replaced} == {"attention", "gelu"}
    left = [(s.name, s.op) for s in report.not_replaced if s.op in ("layernorm", "loss")]
    assert len(left) == 6 and ("loss_function", "loss") in left
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="aot_eager")(**labelled).loss, before, rtol=1e-5, atol=1e-6)
