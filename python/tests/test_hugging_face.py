"""GPT-2 of Hugging Face, with random weights; nothing is downloaded. On the CPU, with fake kernels."""
import copy
import functools
import inspect
import pickle

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import stepscope  # noqa: E402
from test_profile import FORWARD, Sink, mirrored, one_step  # noqa: E402,F401


def config_of(**changes):
    settings = dict(vocab_size=67, n_positions=16, n_layer=2, n_head=2, n_embd=32, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return transformers.GPT2Config(**{**settings, **changes})


def gpt2(kind=transformers.GPT2LMHeadModel, **changes):
    torch.manual_seed(0)
    return kind(config_of(**changes)).train()


class Wrapped(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, labels):
        return self.model(tokens, labels=labels).loss


def left_padded(rows=2):
    mask = torch.ones(rows, 16, dtype=torch.int64)
    mask[:, :4] = 0
    return mask


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
    assert model.base_model.config.use_cache is False
    report.undo()
    assert model.base_model.config is model.config
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
    mask = left_padded()
    with pytest.raises(stepscope.Refused, match="a mask was asked for"):
        model(input_ids=labelled["input_ids"], attention_mask=mask)
    with pytest.raises(stepscope.Refused, match="key-value cache was asked for.*use_cache=False"):
        model(input_ids=labelled["input_ids"], use_cache=True)
    attention, x = model.transformer.h[0].attn, torch.randn(1, 3, model.config.n_embd)
    with pytest.raises(stepscope.Refused, match="cu_seq_lens_q was asked for"):
        attention(x, cu_seq_lens_q=torch.tensor([0, 3]))
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


def test_positions_of_packed_sequences_are_refused_by_place_as_well():
    tokens, packed = torch.randint(67, (1, 16)), torch.arange(8).repeat(2)[None]
    model = gpt2(transformers.GPT2Model)
    names = list(inspect.signature(model.forward).parameters)
    stepscope.replace(model)
    with pytest.raises(stepscope.Refused, match="begin anew within a row"):
        model(tokens, *[None] * (names.index("position_ids") - 1), packed)


def test_with_a_mask_positions_are_only_positions(labelled):
    """As in transformers, which looks for packed sequences where there is no mask."""
    tokens, packed = labelled["input_ids"], torch.arange(8).repeat(2)[None]
    model = gpt2().eval()
    own = model(tokens, position_ids=packed, attention_mask=torch.ones_like(tokens), use_cache=False).logits
    stepscope.replace(model)
    torch.testing.assert_close(model(tokens, position_ids=packed, attention_mask=torch.ones_like(tokens)).logits, own)
    with pytest.raises(stepscope.Refused, match="a mask was asked for"):
        model.generate(tokens[:, :8], attention_mask=left_padded()[:, :8], max_new_tokens=1, use_cache=False, pad_token_id=0)


def test_a_mask_while_compiled_is_looked_at_or_refused_with_what_to_do(labelled, monkeypatch):
    model = gpt2()
    stepscope.replace(model)
    torch._dynamo.reset()
    run = torch.compile(model, backend="eager")
    with pytest.raises(stepscope.Refused, match="a mask was asked for"):
        run(input_ids=labelled["input_ids"], attention_mask=left_padded())
    if not hasattr(transformers, "AttentionMaskInterface"):
        return
    # Versions of Dynamo differ in whether they go back to eager here, and in what else fullgraph=True writes around the sentence.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(stepscope.Refused, match="Leave attention_mask out if it does not"):
        model(input_ids=labelled["input_ids"], attention_mask=torch.ones(2, 16))


def test_a_config_shared_with_another_model_stays_what_it_was(labelled):
    config, tokens = config_of(), labelled["input_ids"]
    torch.manual_seed(0)
    model, other = transformers.GPT2LMHeadModel(config), transformers.GPT2LMHeadModel(config)
    before = other(tokens, attention_mask=left_padded()).logits, other(tokens[:1], attention_mask=left_padded(1)).logits
    held = config.to_dict()
    first, second = stepscope.replace(model), stepscope.replace(gpt2(lambda _: transformers.GPT2LMHeadModel(config)))
    assert config.to_dict() == held and model.config is config and model.base_model.config.use_cache is False
    assert torch.equal(other(tokens, attention_mask=left_padded()).logits, before[0])
    assert torch.equal(other(tokens[:1], attention_mask=left_padded(1)).logits, before[1])
    assert other(tokens).past_key_values is not None
    for made in (type(model)(model.config), transformers.AutoModelForCausalLM.from_config(model.config)):
        made.load_state_dict(other.state_dict())
        torch.testing.assert_close(made.eval()(tokens, attention_mask=left_padded()).logits, before[0])
    first.undo()
    second.undo()
    assert config.use_cache is True and config._attn_implementation == other.config._attn_implementation != "stepscope"
    assert model.base_model.config is config


def test_the_config_of_a_replaced_model_copies_and_pickles_as_what_it_was_and_runs_nothing_else(labelled, tmp_path):
    model = gpt2(transformers.GPT2Model)
    report = stepscope.replace(model)
    model.config.resid_pdrop = 0.125
    for twin in (copy.deepcopy(model.config), copy.copy(model.config), pickle.loads(pickle.dumps(model.config))):
        assert type(twin) is transformers.GPT2Config and twin.use_cache is True and twin.resid_pdrop == 0.125
    model.save_pretrained(tmp_path)
    assert "stepscope" not in (tmp_path / "config.json").read_text()
    assert transformers.GPT2Config.from_pretrained(tmp_path).use_cache is True
    with pytest.raises(stepscope.Refused, match="was not replaced.*copy.deepcopy"):
        type(model)(model.config)(labelled["input_ids"])
    assert copy.deepcopy(model).config.use_cache is False, "the copy of a replaced model is replaced"
    report.undo()
    assert type(model.config) is transformers.GPT2Config and model.config.resid_pdrop == 0.125
    assert model.config._attn_implementation in ("sdpa", "eager")


def test_an_attention_that_computes_something_else_stays_and_is_listed(labelled, monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    def window(module, query, key, value, mask, **settings):
        i = torch.arange(query.shape[2])
        near = (i[:, None] - i < 3) & (i[:, None] >= i)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=near).transpose(1, 2).contiguous(), None

    def stays(model, why, other):
        before = model(**labelled).logits
        report = stepscope.replace(model)
        torch.testing.assert_close(model(**labelled).logits, before, rtol=1e-4, atol=1e-5)
        assert (before - plain).abs().max() > 1e-2 or not other
        assert all(why in s.why for s in report.not_replaced if s.op == "attention") and "attention" not in {s.op for s in report.replaced}

    plain = gpt2()(**labelled).logits
    monkeypatch.setitem(functions, "window3", window)
    model = gpt2()
    model.config._attn_implementation = "window3"
    stays(model, "its attention is 'window3'", other=True)
    monkeypatch.setitem(functions, "sdpa", window)
    stays(gpt2(), "'sdpa' was registered anew", other=True)
    monkeypatch.undo()

    own = GPT2Attention.forward

    @functools.wraps(own)
    def halved(self, *arguments, **named):
        out, *rest = own(self, *arguments, **named)
        return out * 0.5, *rest

    monkeypatch.setattr(GPT2Attention, "forward", halved)
    stays(gpt2(), "is not transformers' own", other=False)
    monkeypatch.undo()
    assert "attention" in {s.op for s in stepscope.replace(gpt2()).replaced}


def test_what_is_changed_after_the_replacement_is_refused_not_ignored(labelled):
    model = gpt2()
    stepscope.replace(model)
    attention = model.transformer.h[1].attn
    attention.attn_dropout.p = 0.5
    with pytest.raises(stepscope.Refused, match="dropout of 0.5"):
        model(**labelled)
    model.eval()(**labelled)
    model.train()
    attention.attn_dropout.p = 0.0
    attention.scaling = 0.5
    with pytest.raises(stepscope.Refused, match="scaled by 0.5"):
        model(**labelled)
    attention.scaling = attention.head_dim**-0.5
    for name in ("eager", "window3"):
        model(**labelled)
        model.config._attn_implementation = name
    with pytest.raises(stepscope.Refused, match="changed to 'window3'"):
        model(**labelled)


def test_the_weights_of_an_attention_are_refused(labelled):
    model = gpt2(attn_implementation="eager")
    report = stepscope.replace(model)
    with pytest.raises(stepscope.Refused, match="weights as output"):
        model(**labelled, output_attentions=True)
    model.config.output_attentions = True
    with pytest.raises(stepscope.Refused, match="weights as output"):
        model(**labelled)
    model(**labelled, output_attentions=False)
    with report.off():
        assert len(model(**labelled, use_cache=False).attentions) == 2


def test_a_model_inside_another_module_is_replaced_whole(labelled):
    tokens, labels = labelled.values()
    whole = Wrapped(gpt2())
    whole.second = gpt2(n_layer=1)
    before = whole(tokens, labels), whole.second(tokens, labels=labels).loss
    report = stepscope.replace(whole)
    assert report.not_replaced == []
    assert [s.name for s in report.replaced if s.op == "loss"] == ["model.loss_function", "second.loss_function"]
    torch.testing.assert_close(whole(tokens, labels), before[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole.second(tokens, labels=labels).loss, before[1], rtol=1e-5, atol=1e-6)
    report.undo()
    assert torch.equal(whole(tokens, labels), before[0])
    left = {s.name for s in stepscope.replace(whole, compiled=True).not_replaced if s.op == "loss"}
    assert left == {"model.loss_function", "second.loss_function"}


@pytest.mark.parametrize("changes", [dict(scale_attn_by_inverse_layer_idx=True), dict(add_cross_attention=True)], ids=str)
def test_where_one_attention_stays_all_of_the_model_do(labelled, changes):
    model = gpt2(**changes)
    before = model(**labelled).loss
    report = stepscope.replace(torch.nn.ModuleList([model, gpt2()]))
    stays = [s.name for s in report.not_replaced if s.op == "attention"]
    assert len(stays) == sum(type(m).__name__ == "GPT2Attention" for m in model.modules()) and all(n.startswith("0.") for n in stays)
    assert [s.name for s in report.replaced if s.op == "attention"] == [f"1.transformer.{n}" for n in ("h.0.attn", "h.1.attn", "config")]
    after = model(**labelled)
    torch.testing.assert_close(after.loss, before, rtol=1e-5, atol=1e-6)
    assert after.past_key_values is not None


@pytest.mark.parametrize("loss", ["kept_sum", "one_read"])
def test_a_loss_over_items_of_several_batches_is_transformers_own(labelled, loss):
    labels = labelled["labels"].clone()
    labels[0, 3:9] = -100
    own, ours = gpt2(), gpt2()
    stepscope.replace(ours, loss=loss)
    for given, items in ((labels, 37), (labels, torch.tensor(37)), (torch.full_like(labels, -100), torch.tensor(37))):
        answers = []
        for model in (own, ours):
            model.zero_grad()
            answer = model(labelled["input_ids"], labels=given, num_items_in_batch=items).loss
            answer.backward()
            answers.append((answer.detach(), [p.grad for p in model.parameters()]))
        torch.testing.assert_close(answers[1], answers[0], rtol=1e-4, atol=1e-7)


def test_a_loss_of_its_own_and_types_without_kernels_are_listed(labelled):
    report = stepscope.replace(gpt2(transformers.GPT2DoubleHeadsModel))
    assert [(s.name, s.what) for s in report.not_replaced] == [("loss_function", "GPT2DoubleHeadsModel")]
    assert "in another way" in report.not_replaced[0].why
    for kind, name in ((torch.float16, "float16"), (torch.float64, "float64")):
        model = gpt2().to(kind)
        before = model(**labelled).loss
        report = stepscope.replace(model)
        assert report.replaced == [] and all(f"weights are {name}" in s.why for s in report.not_replaced)
        assert {s.op for s in report.not_replaced} == {"attention", "gelu", "layernorm", "loss"}
        assert torch.equal(model(**labelled).loss, before)


def test_a_loss_function_of_a_class_of_the_user_is_none_of_transformers():
    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.norm = config_of(), torch.nn.LayerNorm(4)

        def loss_function(self, labels):
            return labels.sum()

        def forward(self, labels):
            return self.loss_function(self.norm(labels))

    assert {(s.op, s.what, s.why) for s in stepscope.replace(Mine(), gelu=True, loss=True).not_replaced} == {
        (op, "Mine", "no such op was recognized in this model") for op in ("gelu", "loss")}


def test_a_report_names_the_users_class():
    class Gelu(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x, approximate="tanh")

    assert {s.what for s in stepscope.replace(Gelu()).not_replaced} == {"Gelu"}


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


def test_an_attention_that_is_not_replaced_is_refused_where_it_would_see_later_tokens(labelled):
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
    model = gpt2(attn_implementation="eager")
    report = stepscope.replace(model)
    model.transformer.h[1].attn = GPT2Attention(model.config, layer_idx=1)
    with pytest.raises(stepscope.Refused, match="h.1.attn is not replaced"):
        model(**labelled)
    with report.off():
        own = model(**labelled).logits
    report.undo()
    assert torch.equal(model(**labelled).logits, own)


def test_a_config_made_by_the_class_of_a_replaced_models_is_plain():
    model = gpt2().transformer
    report = stepscope.replace(model, attention=True)
    made = type(model.config).from_dict(model.config.to_dict())
    assert type(made) is transformers.GPT2Config and copy.deepcopy(made).use_cache is made.use_cache
    made.use_cache = True
    assert made.use_cache is True
    report.undo()


def test_another_config_after_the_replacement_is_refused_by_name(labelled):
    model = gpt2()
    report = stepscope.replace(model)
    model.transformer.config = copy.deepcopy(gpt2().config)
    with pytest.raises(stepscope.Refused, match="was given another config"):
        model(**labelled)
    report.undo()
    model(**labelled)
