"""Ranges of a step, on the CPU, with a sink that writes them down."""
import sys

import pytest
import torch

import stepscope
from stepscope._profile import leaves_of


class Sink:
    """The leaves in the order in which they were opened; refuses nesting below the step."""

    def __init__(self):
        self.opened, self.stack = [], []

    def push(self, name):
        self.stack.append(name)
        assert len(self.stack) <= 2, self.stack
        self.opened.append("/".join(self.stack))

    def pop(self):
        self.stack.pop()


def block(i):
    return [f"forward/{i}/{op}" for op in ("ln1", "qkv", "attention", "attproj", "residual1", "ln2", "mlp_up", "gelu", "mlp_down", "residual2")]


def mirrored(leaves):
    return ["backward/" + leaf.split("/", 1)[1] for leaf in reversed(leaves)]


FORWARD = ["encoder/-/embedding", *block(0), *block(1), "forward/-/lnf", "forward/-/lm_head", "classifier/-/loss"]


def one_step(model, batch, sink):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with stepscope.profile("step", sink=sink):
        model(*batch)[1].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def test_backward_mirrors_forward_leaf_by_leaf(tiny, batch):
    sink = Sink()
    one_step(tiny, batch, sink)
    want = ["step", *("step/" + leaf for leaf in ("other/-/copy", *FORWARD, *mirrored(FORWARD), "optimizer/-/grad_norm", "optimizer/-/adamw",
                                                  "optimizer/-/zero_grad"))]
    assert sink.opened == want
    assert sink.stack == []


def test_replaced_ops_have_the_same_leaves(tiny, batch):
    stepscope.replace(tiny)
    sink = Sink()
    one_step(tiny, batch, sink)
    assert [p for p in sink.opened if "/backward/" in p] == ["step/" + leaf for leaf in mirrored(FORWARD)]


def test_an_exception_closes_every_range_and_hooks_are_gone(tiny, batch):
    sink = Sink()
    with pytest.raises(ZeroDivisionError), stepscope.profile("step", sink=sink):
        tiny(*batch)
        1 / 0
    assert sink.stack == []
    count = len(sink.opened)
    tiny(*batch)[1].backward()
    assert len(sink.opened) == count


def test_a_checkpointed_forward_inside_the_backward_is_backward(tiny, batch):
    from torch.utils.checkpoint import checkpoint
    inner = tiny.transformer.h[1].forward
    tiny.transformer.h[1].forward = lambda x: checkpoint(inner, x, use_reentrant=False)
    sink = Sink()
    one_step(tiny, batch, sink)
    first = sink.opened.index("step/backward/-/loss")
    assert not [p for p in sink.opened[first:] if "/forward/" in p]
    assert "step/backward/1/mlp_up" in sink.opened


def test_the_hooks_do_not_change_gradients(tiny, batch):
    tiny(*batch)[1].backward()
    own = [p.grad.clone() for p in tiny.parameters()]
    tiny.zero_grad()
    with stepscope.profile("step", sink=Sink()):
        tiny(*batch)[1].backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(tiny.parameters(), own))


def test_without_the_collector_it_says_once_how_to_run(tiny, batch, capsys, monkeypatch):
    monkeypatch.delenv("STEPSCOPE_COLLECT", raising=False)
    monkeypatch.setattr(sys, "argv", ["my_training.py"])
    monkeypatch.setattr("stepscope._profile._told", False)
    for _ in range(2):
        with stepscope.profile("turn"):
            tiny(*batch)
    assert capsys.readouterr().err.count("stepscope profile --step-range turn -- python3 my_training.py") == 1


@pytest.mark.parametrize("name, leaves", [
    ("transformer.h.11.attn.c_attn", ("forward/11/qkv", "forward/11/attention")),
    ("module.transformer.h.0.mlp", (None, "forward/0/residual2")),
    ("_orig_mod.transformer.h.3.ln_2", ("forward/3/ln2", None)),
    ("transformer.ln_f", ("forward/-/lnf", None)),
    ("lm_head", ("forward/-/lm_head", "classifier/-/loss")),
    ("transformer.h.0.attn.resid_dropout", None),
    ("encoder.layer.0", None),
])
def test_names_of_modules(name, leaves):
    assert leaves_of(name) == leaves


def kernel_of_zeros(compiler, types, source):
    """In place of a kernel that g++ would compile from `source`: what it would write becomes zero."""
    def kernel(*arguments):
        assert len(arguments) == len(types) and any("*" in t and not t.startswith("const ") for t in types), types
        for argument, kind in zip(arguments, types):
            if "*" in kind and not kind.startswith("const "):
                argument.zero_()
    return kernel


@pytest.fixture
def inductor_with_leaves(monkeypatch):
    """Compiled programs carry leaves, as under the collector; Inductor is as before after the test. The leaves are lines of the program that
    calls the kernels, which runs as Inductor wrote it; the kernels, of which g++ takes a second each, are stand-ins."""
    from stepscope import _compiled
    from stepscope._profile import LOSS
    config = pytest.importorskip("torch._inductor.config")
    scheduler = pytest.importorskip("torch._inductor.scheduler").Scheduler
    monkeypatch.setattr(scheduler, "enter_context", scheduler.enter_context)
    monkeypatch.setattr(pytest.importorskip("torch._inductor.async_compile").AsyncCompile, "cpp_pybinding", kernel_of_zeros)
    monkeypatch.setattr(_compiled, "_installed", False)
    labelled = []
    label_graph = _compiled.label_graph
    monkeypatch.setattr(_compiled, "label_graph", lambda *a: labelled.append(label_graph(*a)))
    torch._dynamo.reset()
    with config.patch(joint_custom_pre_pass=None, force_disable_caches=True):
        assert _compiled.install(leaves_of, LOSS) is None
        yield labelled
    torch._dynamo.reset()


@pytest.mark.skipif(tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 11),
                    reason="Dynamo of PyTorch 2.6.0 compiles again when profile() hooks; versions up to 2.11 were not tried")
@pytest.mark.parametrize("replaced", [False, True], ids=["pytorch", "replaced"])
def test_a_compiled_step_switches_its_leaves_itself(tiny, batch, inductor_with_leaves, replaced):
    if replaced:
        stepscope.replace(tiny)
    compiled = torch.compile(tiny)
    compiled(*batch)[1].backward()
    assert len(inductor_with_leaves) == 1
    sink = Sink()
    one_step(compiled, batch, sink)
    assert len(inductor_with_leaves) == 1, "the hooks of profile() made Dynamo compile the model again"
    seen = [leaf.removeprefix("step/") for leaf in sink.opened]
    first = next(i for i, leaf in enumerate(seen) if leaf.startswith("backward/"))
    assert not [leaf for leaf in seen[first:] if leaf.startswith("forward/")], "what is computed again belongs to the backward"
    # Kernels of sums and products of one op may be fused into a neighbour's; products and own kernels stay.
    products = [f"{p}/{i}/{op}" for i in range(2) for op in ("qkv", "attproj", "mlp_up", "mlp_down") for p in ("forward", "backward")]
    assert set(products) | {"forward/-/lm_head", "backward/-/lm_head", "classifier/-/loss", "optimizer/-/adamw"} <= set(seen)
    if replaced:
        own = [f"{p}/{i}/{op}" for i in range(2) for op in ("ln1", "ln2", "attention", "gelu") for p in ("forward", "backward")]
        assert {*own, "forward/-/lnf", "backward/-/lnf", "backward/-/loss"} <= set(seen)
