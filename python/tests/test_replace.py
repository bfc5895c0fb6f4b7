"""What is recognized, what is refused, what the report says. On the CPU, with fake kernels."""
import contextlib
import copy
import gc
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import stepscope
from stepscope import optim
from fake_kernels import KERNELS, wrong
from stepscope.models import gpt


def loss_and_gradients(model, batch):
    model.zero_grad()
    loss = model(*batch)[1]
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in model.named_parameters()}


def test_a_nanogpt_model_is_replaced_whole_and_computes_the_same(tiny, batch):
    loss, gradients = loss_and_gradients(tiny, batch)
    keys = list(tiny.state_dict())
    report = stepscope.replace(tiny)
    ours, our_gradients = loss_and_gradients(tiny, batch)
    assert sorted(s.op for s in report.replaced) == ["attention"] * 2 + ["gelu"] * 2 + ["layernorm"] * 5 + ["loss"]
    assert report.not_replaced == []
    assert ours == pytest.approx(loss, rel=1e-6)
    for name, g in gradients.items():
        torch.testing.assert_close(our_gradients[name], g, rtol=2e-4, atol=1e-6)
    assert list(tiny.state_dict()) == keys
    assert "StepscopeLayerNorm" in repr(tiny)


@pytest.mark.parametrize("op, kernel", [("layernorm", "layernorm_forward"), ("gelu", "gelu_forward"), ("attention", "attention_forward"),
                                        ("loss", "cross_entropy_kept_sum_forward")])
def test_each_op_alone_runs_its_own_kernel_and_no_other(tiny, batch, op, kernel):
    stepscope.replace(tiny, **{op: True})
    called = []
    with torch.no_grad():
        for name in KERNELS:
            def spy(*a, name=name):
                called.append(name)
                return KERNELS[name](*a)
            with wrong(name, spy):
                tiny(*batch)
    assert set(called) - {"sdpa_forward"} == {kernel}  # sdpa_forward is attention_forward of three views


@pytest.mark.parametrize("loss", ["one_read", "kept_sum"])
def test_either_loss_leaves_the_logits_and_has_pytorchs_gradient(loss):
    torch.manual_seed(0)
    targets = torch.tensor([3, -100, 66, 0])
    logits = torch.randn(4, 67, requires_grad=True)
    before = logits.detach().clone()
    ours = stepscope.functional.cross_entropy(logits, targets, classifier=loss)
    own = F.cross_entropy(logits, targets)
    assert ours.item() == pytest.approx(own.item(), rel=1e-6)
    torch.testing.assert_close(torch.autograd.grad(ours * 3, logits)[0], torch.autograd.grad(own * 3, logits)[0])
    assert torch.equal(logits, before)


def test_without_cudnn_the_default_leaves_attention_to_pytorch_and_says_why(tiny, batch, monkeypatch):
    monkeypatch.setattr(stepscope.functional, "has_cudnn", lambda: False)
    report = stepscope.replace(tiny)
    assert {s.op for s in report.replaced} == {"layernorm", "gelu", "loss"}
    assert [(s.name, s.op) for s in report.not_replaced] == [("transformer.h.0.attn", "attention"), ("transformer.h.1.attn", "attention")]
    assert "attention='flash'" in str(report)
    report.undo()
    forced = stepscope.replace(tiny, attention="flash")
    assert [s.op for s in forced.replaced] == ["attention"] * 2
    assert forced.replaced[0].variants == "attention_forward=flash, attention_backward=flash"


def called_by(run):
    """Names of the kernels that a run calls."""
    called = set()
    with contextlib.ExitStack() as stack:
        for name in KERNELS:
            stack.enter_context(wrong(name, lambda *a, name=name: (called.add(name), KERNELS[name](*a))[1]))
        run()
    return called


def compiled_in_place(model):
    model.compile(backend="aot_eager", fullgraph=True)
    return model


@pytest.mark.parametrize("compiled, settings", [(lambda model: model, dict(compiled=True)), (compiled_in_place, {}),
                                                (lambda model: torch.compile(model, backend="aot_eager", fullgraph=True), {})],
                         ids=["compiled=True", "model.compile()", "torch.compile(model)"])
def test_under_compile_the_default_leaves_to_inductor_what_it_fuses(tiny, batch, compiled, settings):
    torch._dynamo.reset()
    twin, model = copy.deepcopy(tiny), compiled(tiny)
    report = stepscope.replace(model, **settings)
    assert sorted(s.op for s in report.replaced) == ["attention"] * 2 + ["gelu"] * 2
    left = {(s.name, s.op) for s in report.not_replaced}
    assert ("", "loss") in left and ("transformer.ln_f", "layernorm") in left and len(left) == 6
    assert "left to torch.compile" in str(report) and "3.06 ms" in str(report)
    assert called_by(lambda: model(*batch)) - {"sdpa_forward"} == {"attention_forward", "gelu_forward"}
    torch.testing.assert_close(model(*batch)[1], twin(*batch)[1])
    with report.off():
        assert called_by(lambda: model(*batch)) == set()


def test_a_compiled_model_inside_of_data_parallel_is_a_compiled_one(tiny):
    compiled = torch.compile(tiny, backend="eager")
    report = stepscope.replace(nn.DataParallel(compiled))
    assert {s.op for s in report.replaced} == {"attention", "gelu"}
    report.undo()
    assert {s.op for s in stepscope.replace(nn.DataParallel(tiny)).replaced} == {"attention", "gelu", "layernorm", "loss"}


def test_an_op_that_is_named_is_replaced_under_compile_too(tiny):
    report = stepscope.replace(tiny, compiled=True, layernorm=True, loss="one_read")
    assert {s.op for s in report.replaced} == {"layernorm", "loss"} and report.not_replaced == []


def test_compiled_false_takes_all_ops_of_a_compiled_model(tiny):
    report = stepscope.replace(torch.compile(tiny, backend="aot_eager"), compiled=False)
    assert {s.op for s in report.replaced} == {"attention", "gelu", "layernorm", "loss"} and report.not_replaced == []


def test_what_pytorch_calls_input_is_called_so():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln, self.act = nn.LayerNorm(32), nn.GELU(approximate="tanh")

        def forward(self, x):
            y = self.act(input=self.ln(input=x))
            y = F.layer_norm(input=y, normalized_shape=(32,), weight=self.ln.weight, bias=self.ln.bias)
            return F.gelu(input=y, approximate="tanh")

    model, x = Named(), torch.randn(4, 32)
    expected = model(x)
    stepscope.replace(model)
    torch.testing.assert_close(model(x), expected)


def test_off_and_undo_give_pytorch_back(tiny, batch):
    report = stepscope.replace(tiny)
    nothing = lambda *a: pytest.fail("our kernel ran")
    with wrong("gelu_forward", nothing), wrong("layernorm_forward", nothing), wrong("attention_forward", nothing), \
            wrong("cross_entropy_kept_sum_forward", nothing):
        with report.off():
            tiny(*batch)
        report.undo()
        tiny(*batch)
    assert type(tiny.transformer.ln_f) is nn.LayerNorm and type(tiny) is gpt.GPT
    report.redo()
    assert type(tiny.transformer.ln_f) is not nn.LayerNorm


def test_undo_inside_off_is_for_good(tiny):
    report = stepscope.replace(tiny)
    with report.off():
        with report.off():
            report.undo()
    assert not report.on and type(tiny) is gpt.GPT
    report.redo()
    with report.off():
        assert type(tiny) is gpt.GPT
    assert report.on and type(tiny) is not gpt.GPT


def test_a_copy_keeps_the_ops_and_a_second_replace_is_refused(tiny, batch):
    stepscope.replace(tiny)
    twin = copy.deepcopy(tiny)
    assert twin(*batch)[1].item() == tiny(*batch)[1].item()
    with pytest.raises(stepscope.Refused, match="replaced already"):
        stepscope.replace(tiny)


def test_a_replace_that_is_refused_changes_nothing(tiny):
    inner = stepscope.replace(tiny.transformer.h[1], gelu=True)
    with pytest.raises(stepscope.Refused, match="transformer.h.1.mlp.gelu is replaced already.*undo first, then copy"):
        stepscope.replace(tiny)
    inner.undo()
    assert type(tiny) is gpt.GPT and type(tiny.transformer.ln_f) is nn.LayerNorm


def test_a_replace_that_finds_no_memory_changes_nothing(tiny, batch, monkeypatch):
    def full(optimizer):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(optim, "_Flat", full)
    classes, own = [type(m) for m in tiny.modules()], torch.optim.AdamW(tiny.parameters())
    names = set(vars(gpt))
    with pytest.raises(torch.OutOfMemoryError):
        stepscope.replace(tiny, optimizer=own)
    assert [type(m) for m in tiny.modules()] == classes and type(own) is torch.optim.AdamW and set(vars(gpt)) == names
    assert called_by(lambda: tiny(*batch)) == set()
    assert {s.op for s in stepscope.replace(tiny).replaced} == {"attention", "gelu", "layernorm", "loss"}


def test_an_older_report_does_not_come_back_over_a_newer_one(tiny):
    old = stepscope.replace(tiny)
    old.undo()
    new = stepscope.replace(tiny, layernorm=True)
    with pytest.raises(stepscope.Refused, match="replaced already"):
        old.redo()
    new.undo()
    assert [type(m).__name__ for m in tiny.modules() if hasattr(type(m), "_stepscope_was")] == []
    old.redo()
    assert type(tiny) is not gpt.GPT


def test_a_pickle_is_pytorchs_model_in_a_process_without_stepscope(tmp_path):
    model = nn.Sequential(nn.LayerNorm(8), nn.GELU("tanh"))
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    stepscope.replace(model)
    ours = type(model[0])
    torch.save(model, tmp_path / "model.pt")
    assert type(model[0]) is ours and ours is not nn.LayerNorm
    script = ("import sys, torch; model = torch.load(sys.argv[1], weights_only=False); print([type(m).__name__ for m in model], "
              "model(torch.linspace(-1, 1, 16).reshape(2, 8)).sum().item(), 'stepscope' in sys.modules)")
    ran = subprocess.run([sys.executable, "-c", script, tmp_path / "model.pt"], capture_output=True, text=True)
    names, total, found = ran.stdout.rsplit(" ", 2) if ran.returncode == 0 else (ran.stderr, "nan", "")
    assert names == "['LayerNorm', 'GELU']" and found == "False\n"
    assert float(total) == pytest.approx(model(x).sum().item(), abs=1e-5)


def test_an_op_that_is_said_to_stay_stays(tiny):
    report = stepscope.replace(tiny, gelu=False)
    assert {s.op for s in report.replaced} == {"layernorm", "attention", "loss"} and report.not_replaced == []


def test_a_parametrization_in_between_is_named_and_nothing_is_undone(tiny):
    report = stepscope.replace(tiny)
    replaced = [m for m in tiny.modules() if hasattr(type(m), "_stepscope_was")]
    torch.nn.utils.parametrize.register_parametrization(tiny.transformer.h[1].ln_1, "weight", nn.Identity())
    with pytest.raises(stepscope.Refused, match="ParametrizedStepscopeLayerNorm: the class of this module was changed after it was replaced"):
        report.undo()
    assert report.on and [m for m in tiny.modules() if hasattr(type(m), "_stepscope_was")] == replaced
    torch.nn.utils.parametrize.remove_parametrizations(tiny.transformer.h[1].ln_1, "weight")
    report.undo()
    assert type(tiny) is gpt.GPT and type(tiny.transformer.h[1].ln_1) is nn.LayerNorm


def test_torchscript_is_refused_and_a_model_without_memory_is_not():
    with pytest.raises(stepscope.Refused, match="RecursiveScriptModule is TorchScript"):
        stepscope.replace(torch.jit.script(nn.Sequential(nn.LayerNorm(8))), layernorm=True)
    with torch.device("meta"):
        model = nn.Sequential(nn.LayerNorm(8))
    assert "The model is on meta" in str(stepscope.replace(model, layernorm=True))


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = nn.LayerNorm(8, eps=1e-6)
        self.bare = nn.LayerNorm(8, elementwise_affine=False)
        self.wide = nn.LayerNorm((4, 8))
        self.half = nn.LayerNorm(8).half()
        self.exact = nn.GELU()
        self.fine = nn.LayerNorm(8)


def test_what_is_not_replaced_is_listed_with_the_reason():
    report = stepscope.replace(Odd())
    why = {s.name: s.why for s in report.not_replaced}
    assert "eps is 1e-06" in why["eps"]
    assert "no weight" in why["bare"]
    assert "2 dimensions" in why["wide"]
    assert "float16" in why["half"]
    assert "exact GELU" in why["exact"]
    assert [s.name for s in report.replaced] == ["fine"]
    assert any(s.op == "attention" and "no such op" in s.why for s in report.not_replaced)
    for text in ("not replaced", "exact GELU", "fine"):
        assert text in str(report)


class Doubled(nn.LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class InFloat32(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps).type_as(x) + 1


def test_a_layernorm_with_a_forward_of_its_own_keeps_computing_it():
    model, x = nn.Sequential(Doubled(8), InFloat32(8)), torch.randn(4, 8)
    before = model(x)
    report = stepscope.replace(model, layernorm=True)
    assert [(s.name, s.why) for s in report.not_replaced] == [("0", "Doubled has a forward of its own, which may compute something else than "
                                                               "nn.LayerNorm's")]
    assert [s.name for s in report.replaced] == ["1"]
    assert called_by(lambda: torch.testing.assert_close(model(x), before)) == {"layernorm_forward"}


def test_a_forward_that_was_set_on_the_instance_is_not_called_replaced():
    model = nn.Sequential(nn.LayerNorm(8), ExactInForward())
    for module in model:
        own = module.forward
        module.forward = lambda x, own=own: 3 * own(x)
    report = stepscope.replace(model, layernorm=True, gelu=True)
    assert report.replaced == [] and all("set on the instance" in s.why for s in report.not_replaced) and len(report.not_replaced) == 2
    assert called_by(lambda: model(torch.randn(4, 8))) == set()


class NewGELU(nn.Module):
    def forward(self, x):
        return F.relu(x)


def test_a_module_that_only_bears_the_name_of_gelu_is_asked_what_it_computes():
    report = stepscope.replace(nn.Sequential(NewGELU()), gelu="kernel")
    assert report.replaced == []
    assert "did not answer with the tanh form" in report.not_replaced[0].why


def test_gelu_is_asked_behind_hooks_and_whatever_the_defaults_are():
    x = torch.linspace(-2, 2, 5)
    for defaults in (contextlib.nullcontext, lambda: torch.device("meta")):
        model, seen = nn.Sequential(nn.GELU("tanh")), []
        model[0].register_forward_hook(lambda module, inputs, out: (seen.append(out.shape), 2 * out)[1])
        model[0].register_forward_pre_hook(lambda module, inputs: seen.append("before"))
        with defaults():
            assert [s.op for s in stepscope.replace(model, gelu=True).replaced] == ["gelu"] and seen == []
        torch.testing.assert_close(model(x), 2 * F.gelu(x, approximate="tanh"))
        assert len(seen) == 2
    for dtype in (torch.bfloat16, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            assert [s.op for s in stepscope.replace(nn.Sequential(nn.GELU("tanh")), gelu=True).replaced] == ["gelu"]
        finally:
            torch.set_default_dtype(torch.float32)


class WithoutWeight(nn.Module):
    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:])


class Summed(nn.Module):
    def forward(self, x):
        return F.cross_entropy(x, torch.arange(len(x)), reduction="none")


class Masked(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(*x.view(3, 1, 1, -1, 4))


@pytest.mark.parametrize("of, op", [(WithoutWeight, "layernorm"), (Summed, "loss"), (Masked, "attention")])
def test_a_followed_call_that_no_kernel_takes_names_the_op_to_leave_out(of, op):
    model, x = of(), torch.randn(3, 8)
    report = stepscope.replace(model)
    assert [s.op for s in report.replaced] == [op]
    with pytest.raises(stepscope.Refused, match=f"^{op}: .*; .* If replace.. brought this call here, {op}=False leaves it to PyTorch$"):
        model(x)
    report.undo()
    stepscope.replace(model, **{op: False})
    assert torch.equal(model(x), of()(x))


class ExactInForward(nn.Module):
    def forward(self, x):
        return F.gelu(x) + F.gelu(x, approximate="tanh")


def test_a_forward_with_both_forms_keeps_pytorchs_exact_one():
    model, x, calls = ExactInForward(), torch.randn(4, 8), []
    before = model(x)
    stepscope.replace(model, gelu=True)

    def counted(x):
        calls.append(x.shape)
        return KERNELS["gelu_forward"](x)

    with wrong("gelu_forward", counted):
        torch.testing.assert_close(model(x), before)
    assert len(calls) == 1


class SpeltOut(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")


def test_a_function_spelt_out_from_torch_is_followed():
    model = SpeltOut()
    report = stepscope.replace(model, gelu=True)
    assert [s.op for s in report.replaced] == ["gelu"]
    with wrong("gelu_forward", lambda x: torch.full_like(x, 5)):
        assert model(torch.randn(3)).tolist() == [5, 5, 5]


SCALE, RAN = 1.0, 0


class ReadsAndWritesGlobals(nn.Module):
    def forward(self, x):
        global RAN
        RAN += 1
        return F.gelu(x, approximate="tanh") * SCALE


def test_a_replaced_forward_sees_later_changes_of_its_globals_and_makes_its_own(monkeypatch):
    model, x, before, imported = ReadsAndWritesGlobals(), torch.randn(3), set(globals()), set(sys.modules)
    report = stepscope.replace(model, gelu=True)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    monkeypatch.setitem(globals(), "RAN", 5)
    for run in (model, torch.compile(model, backend="eager", fullgraph=True)):
        assert called_by(lambda: torch.testing.assert_close(run(x), 3 * F.gelu(x, approximate="tanh"))) == {"gelu_forward"}
    assert RAN == 7
    twin = copy.deepcopy(model)
    report.undo()
    assert called_by(lambda: model(x)) == set() and called_by(lambda: twin(x)) == {"gelu_forward"}, "a copy stays replaced"
    del twin
    report.redo()
    assert called_by(lambda: model(x)) == {"gelu_forward"}
    report.undo()
    assert not {n for n in set(globals()) - before if n.startswith("_stepscope_")} and not {n for n in set(sys.modules) - imported if "stand_in" in n}


def test_what_a_replaced_forward_put_into_its_globals_goes_with_the_last_copy():
    model, before = ReadsAndWritesGlobals(), set(globals())
    report = stepscope.replace(model, gelu=True)
    twin = copy.deepcopy(model)
    report.undo()
    assert set(globals()) - before
    del model, report, twin
    gc.collect()
    assert set(globals()) - before == set()


class NameOfAnAttributeToo(nn.Module):
    def __init__(self):
        super().__init__()
        self.F = self.nn = 2.0

    def forward(self, x):
        return self.F * F.gelu(x, approximate="tanh") + self.nn * sum(nn.functional.gelu(t, approximate="tanh") for t in (x, x))


def test_attributes_that_are_called_as_a_global_stay_attributes():
    model, x = NameOfAnAttributeToo(), torch.randn(3)
    before = model(x)
    stepscope.replace(model, gelu=True)
    assert called_by(lambda: torch.testing.assert_close(model(x), before)) == {"gelu_forward"}
    with wrong("gelu_forward", torch.zeros_like):
        assert model(x).tolist() == [0, 0, 0]


class RebindsF(nn.Module):
    def forward(self, x):
        global F
        F = F
        return F.gelu(x, approximate="tanh")


class ThroughAnAttribute(nn.Module):
    F = F

    def forward(self, x):
        return self.F.gelu(x, approximate="tanh")


@pytest.mark.parametrize("of", [RebindsF, ThroughAnAttribute])
def test_a_forward_that_assigns_the_global_or_reads_it_elsewhere_is_not_followed(of):
    report = stepscope.replace(of(), gelu=True)
    assert report.replaced == [] and "not followed" in report.not_replaced[0].why


class OwnNew(nn.Module):
    def __new__(cls, width):
        made = super().__new__(cls)
        made.width = width
        return made

    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return F.gelu(x, approximate="tanh")


def test_a_replaced_class_makes_instances_as_its_own_does():
    model = OwnNew(3)
    stepscope.replace(model, gelu=True)
    assert type(model)(7).width == 7 and called_by(lambda: type(model)(7)(torch.randn(3))) == {"gelu_forward"}


@pytest.mark.parametrize("asked, sentence", [
    (dict(layernorm="nonsense"), "has no variant 'nonsense'; it has warp_per_row, block_per_row"),
    (dict(gelu="matmul_epilogue"), "does not stand alone"),
    (dict(adamw="per_tensor"), "GPT-2's 16 tensors"),
    (dict(linear_forward="bias_epilogue"), "does not stand alone"),
    (dict(softmax="x"), "no op; ops are layernorm"),
    (dict(attention_backward="warp"), "attention_backward has no variant"),
    (dict(layernorm="warp_per_row+block_per_row"), "twice"),
    (dict(atention=False), "'atention' is no op"),
    (dict(residual=False), "residual does not stand alone"),
    (dict(gelu_forward=False), "gelu=False leaves the whole op"),
])
def test_a_variant_that_cannot_stand_alone_is_refused(tiny, asked, sentence):
    with pytest.raises(stepscope.Refused, match=sentence):
        stepscope.replace(tiny, **asked)
    assert type(tiny.transformer.ln_f) is nn.LayerNorm


def test_variants_reach_the_kernels(tiny, batch):
    stepscope.replace(tiny, layernorm="block_per_row+separate_columns", attention="cudnn_deterministic", loss="two_pass",
                      attention_forward="flash")
    seen = {}

    def spy(name):
        def kernel(*a):
            seen[name] = a[-1]
            return KERNELS[name](*a)
        return kernel

    names = ["layernorm_forward", "layernorm_backward", "attention_forward", "attention_backward", "cross_entropy_forward"]
    with wrong(names[0], spy(names[0])), wrong(names[1], spy(names[1])), wrong(names[2], spy(names[2])), wrong(names[3], spy(names[3])), \
            wrong(names[4], spy(names[4])):
        tiny(*batch)[1].backward()
    assert seen == dict(zip(names, ["block_per_row", "separate_columns", "flash", "cudnn_deterministic", "two_pass"]))


def test_the_figures_of_what_is_left_to_inductor_are_those_of_the_records():
    import json
    import pathlib
    from stepscope._variants import LEFT_TO_INDUCTOR
    around = {"layernorm": ("ln1", "ln2", "lnf", "residual1", "residual2"), "loss": ("loss", "lm_head")}
    assert set(LEFT_TO_INDUCTOR) == set(around)
    for op, names in around.items():
        ms = []
        for record in ("profile_compiled.json", "profile_compiled_all.json"):
            document = json.loads((pathlib.Path(__file__).resolve().parent.parent / "measured" / record).read_text())
            ms.append(sum(o["time_ns"] for o in document["ops"] if o["op"] in names) / 1e6)
        assert ms[0] < ms[1] and f"{ms[0]:.2f} ms a step" in LEFT_TO_INDUCTOR[op] and f", {ms[1]:.2f} replaced" in LEFT_TO_INDUCTOR[op], (op, ms)


def test_the_library_has_the_variants_of_the_table():
    why = stepscope.why_missing()
    if why:
        pytest.skip(why)
    from stepscope._variants import ALONE
    in_library = stepscope.variants()
    assert ALONE["classifier"][0] == in_library["fp32"]["classifier"][0] == in_library["mixed"]["classifier"][0], "the default first"
    for slot, names in ALONE.items():
        both = set(in_library["fp32"].get(slot, [])) | set(in_library["mixed"].get(slot, []))
        assert set(names) == both, slot
