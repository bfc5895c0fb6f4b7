"""The executor for Lightning Thunder: what it takes, what it leaves and why, its numbers. On the CPU with fake kernels; gpu tests at the end."""
import copy
import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

thunder = pytest.importorskip("thunder", reason="Lightning Thunder does not import here (pip install lightning-thunder)")

import stepscope  # noqa: E402
from fake_kernels import KERNELS, wrong  # noqa: E402
from stepscope.models import GPT, GPTConfig  # noqa: E402
from thunder.core import dtypes  # noqa: E402
from thunder.core.proxies import TensorProxy  # noqa: E402
from thunder.core.trace import TraceCtx, tracectx  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LTORCH = thunder.torch
numbers = itertools.count()


def jit(program, executor=None):
    return thunder.jit(program, executors=[executor or stepscope.thunder.executor, *thunder.get_default_executors()])


def proxy(*shape, dtype=dtypes.float32, device="cpu"):
    with tracectx(TraceCtx(None)):  # a proxy is named by the trace that it is made in
        return TensorProxy(f"t{next(numbers)}", shape=shape, dtype=dtype, device=thunder.core.devices.Device(device))


def why(symbol, *arguments, executor=None, **settings):
    return (executor or stepscope.thunder.executor)._why_not[symbol.id](*arguments, **settings)


class Ops(nn.Module):
    """Every op once, on tensors that autograd follows, some of them not contiguous."""

    def __init__(self, dtype):
        super().__init__()
        self.norm = nn.LayerNorm(16, dtype=dtype)
        self.unbiased = nn.LayerNorm(16, bias=False, dtype=dtype)
        self.c_attn = nn.Linear(16, 48, dtype=dtype)

    def forward(self, x, targets):
        B, T, C = x.shape
        x = x + self.norm(x.transpose(1, 2).contiguous().transpose(1, 2))
        q, k, v = (t.view(B, T, 2, C // 2).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = F.gelu(self.unbiased(x), approximate="tanh")
        return F.cross_entropy(x.view(-1, C), targets)


def loss_and_gradients(program, module, x, targets):
    x = x.clone().requires_grad_()
    for p in module.parameters():
        p.grad = None
    loss = program(x, targets)
    loss.backward()
    return [loss.detach(), x.grad] + [p.grad.clone() for p in module.parameters()]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_every_op_is_taken_and_loss_and_gradients_are_pytorchs(dtype, tolerance):
    torch.manual_seed(0)
    module = Ops(dtype)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    x, targets = torch.randn(2, 8, 16).to(dtype), torch.randint(16, (16,))
    targets[3] = -100
    own = loss_and_gradients(module, module, x, targets)
    compiled = jit(module)
    ours = loss_and_gradients(compiled, module, x, targets)
    assert [(r.op, r.taken_by) for r in stepscope.thunder.report(compiled).rows] == [
        (op, "stepscope") for op in ("layer_norm", "scaled_dot_product_attention", "layer_norm", "gelu", "cross_entropy")]
    assert [t.dtype for t in ours] == [t.dtype for t in own]
    for a, b in zip(ours, own):
        assert (a - b).norm() <= tolerance * b.norm()

    # Each kernel is behind it: an answer of another size shows in the loss or in a gradient.
    for name in ("layernorm_forward", "layernorm_backward", "sdpa_forward", "sdpa_backward", "gelu_forward", "gelu_backward",
                 "cross_entropy_kept_sum_forward", "cross_entropy_kept_sum_backward"):
        def doubled(*arguments, kernel=KERNELS[name]):
            answer = kernel(*arguments)
            return 2 * answer if isinstance(answer, torch.Tensor) else (2 * answer[0], *answer[1:])

        with wrong(name, doubled):
            spoiled = loss_and_gradients(compiled, module, x, targets)
        assert any((a - b).norm() > 0.1 * b.norm() for a, b in zip(spoiled, own)), f"{name} did not run"


W, B = (lambda **k: proxy(8, **k)), (lambda **k: proxy(8, **k))
REFUSED = {
    "eps": (lambda: why(LTORCH.layer_norm, proxy(4, 8), (8,), W(), B(), 1e-6), "eps is 1e-06"),
    "no weight": (lambda: why(LTORCH.layer_norm, proxy(4, 8), (8,)), "no weight"),
    "two dimensions": (lambda: why(LTORCH.layer_norm, proxy(4, 2, 8), (2, 8), proxy(2, 8), proxy(2, 8)), "last dimension only"),
    "float16": (lambda: why(LTORCH.layer_norm, proxy(4, 8, dtype=dtypes.float16), (8,), W(), B()), "input is float16"),
    "mixed types": (lambda: why(LTORCH.layer_norm, proxy(4, 8, dtype=dtypes.bfloat16), (8,), W(), B()), "weight is float32 and input is bfloat16"),
    "two devices": (lambda: why(LTORCH.layer_norm, proxy(4, 8), (8,), W(), B(device="meta")), "bias is on meta and input on cpu"),
    "empty": (lambda: why(LTORCH.gelu, proxy(0, 8), approximate="tanh"), "input is empty"),
    "exact gelu": (lambda: why(LTORCH.gelu, proxy(4, 8)), "another function"),
    "integers": (lambda: why(LTORCH.gelu, proxy(4, 8, dtype=dtypes.int64), approximate="tanh"), "input is int64"),
    "wide rows": (lambda: why(LTORCH.layer_norm, *(proxy(*s, dtype=dtypes.bfloat16) for s in ((4, 2056),)), (2056,), *(
        proxy(2056, dtype=dtypes.bfloat16) for _ in range(2))), "layernorm_forward=warp_per_row holds rows of up to 2048"),
    "wide rows of no whole packs": (lambda: why(LTORCH.layer_norm, proxy(4, 2049), (2049,), proxy(2049), None), "fused_rows holds rows of up to 2048"),
    "not causal": (lambda: why(LTORCH.scaled_dot_product_attention, *(proxy(1, 2, 8, 4) for _ in range(3))), "is_causal is False"),
    "mask": (lambda: why(LTORCH.scaled_dot_product_attention, *(proxy(1, 2, 8, 4) for _ in range(3)), proxy(8, 8)), "a mask was given"),
    "dropout": (lambda: why(LTORCH.scaled_dot_product_attention, *(proxy(1, 2, 8, 4) for _ in range(3)), None, 0.1, True), "dropout of 0.1"),
    "scale": (lambda: why(LTORCH.scaled_dot_product_attention, *(proxy(1, 2, 8, 4) for _ in range(3)), is_causal=True, scale=1.0), "scale is 1.0"),
    "shorter keys": (lambda: why(LTORCH.scaled_dot_product_attention, proxy(1, 2, 8, 4), proxy(1, 2, 6, 4), proxy(1, 2, 6, 4), is_causal=True), "one shape"),
    "sum": (lambda: why(LTORCH.cross_entropy, proxy(4, 7), proxy(4, dtype=dtypes.int64), reduction="sum"), "reduction='sum'"),
    "smoothing": (lambda: why(LTORCH.cross_entropy, proxy(4, 7), proxy(4, dtype=dtypes.int64), label_smoothing=0.1), "label_smoothing=0.1"),
    "weights of classes": (lambda: why(LTORCH.cross_entropy, proxy(4, 7), proxy(4, dtype=dtypes.int64), proxy(7)), "weight was given"),
    "probabilities": (lambda: why(LTORCH.cross_entropy, proxy(4, 7), proxy(4, 7)), "input .4, 7. with target .4, 7."),
    "targets with fractions": (lambda: why(LTORCH.cross_entropy, proxy(4, 7), proxy(4)), "target is float32"),
    "targets elsewhere": (lambda: why(LTORCH.cross_entropy, proxy(4, 7), proxy(4, dtype=dtypes.int64, device="meta")), "target is on meta and input on cpu"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_kernel_takes_is_left_with_a_sentence(case):
    call, sentence = REFUSED[case]
    assert re.search(sentence, call())


def test_a_symbolic_size_is_left_and_whole_packs_are_taken():
    symbolic = proxy(4, 8)
    with tracectx(TraceCtx(None)):
        symbolic._shape = (thunder.core.proxies.NumberProxy(value=4, python_type=int), 8)
    assert "symbolic" in why(LTORCH.gelu, symbolic, approximate="tanh")
    for wide, dtype in ((2048, dtypes.bfloat16), (8192, dtypes.float32), (256, dtypes.bfloat16)):
        assert why(LTORCH.layer_norm, proxy(4, wide, dtype=dtype), (wide,), proxy(wide, dtype=dtype), proxy(wide, dtype=dtype)) is None


def test_the_widest_rows_are_those_of_the_kernels():
    forward, backward = ((ROOT / f"gpt2/ops/layernorm_{pass_}.cu").read_text(encoding="utf-8") for pass_ in ("forward", "backward"))
    packs = int(re.search(r"kMostHeldPacks = (\d+);", forward)[1])
    threads = int(re.search(r"kFusedThreads = (\d+);", backward)[1])
    whole, single = map(int, re.search(r"kFusedThreads \* \(packs \? (\d+) : (\d+)\)", backward).groups())
    assert "kHoldsRow = sizeof(S) == 2" in forward, "float32 is held now as well"
    widest = stepscope.thunder.WIDEST
    assert widest["layernorm_forward", "warp_per_row"] == {dtypes.bfloat16: (packs * 32 * 8, packs * 32)}
    assert set(widest["layernorm_backward", "fused_rows"].values()) == {(threads * whole, threads * single)}


def test_what_is_left_is_computed_by_thunder():
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8)

    def program(x, weight):
        return F.gelu(F.layer_norm(x, (8,), weight, None, 1e-6)).sum()

    compiled = jit(program)
    own, ours = program(x, weight), compiled(x, weight)
    torch.testing.assert_close(ours, own)
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(own, x))
    rows = stepscope.thunder.report(compiled).rows
    assert [r.op for r in rows] == ["layer_norm", "gelu"] and all(r.taken_by != "stepscope" and r.why for r in rows)
    assert "eps is 1e-06" in str(stepscope.thunder.report(compiled))


ON_A_CPU = """
import torch, thunder, stepscope
program = lambda x: torch.nn.functional.gelu(x, approximate="tanh")
compiled = thunder.jit(program, executors=[stepscope.thunder.executor, *thunder.get_default_executors()])
x = torch.randn(4, 8)
torch.testing.assert_close(compiled(x), program(x))
print(stepscope.thunder.report(compiled))
"""


def test_a_cpu_without_kernels_is_left_to_thunder():
    # In a process of its own, where no test put kernels on the CPU.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *sys.path])}
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", ON_A_CPU], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "input is on cpu; the kernels run on CUDA devices" in ran.stdout


def test_a_device_without_the_library_is_an_error_and_no_silent_default(monkeypatch):
    def missing():
        raise stepscope.MachineError("libstepscope_ops.so was not found")

    monkeypatch.setattr(stepscope._library, "load", missing)
    with pytest.raises(stepscope.MachineError, match="was not found"):
        why(LTORCH.gelu, proxy(4, 8, device="cuda:0"), approximate="tanh")


def test_the_librarys_refusal_of_heads_is_the_reason(monkeypatch):
    def refuses(name, *arguments):
        assert arguments[1:] == (0, 1, 8, 512, 2)
        raise stepscope.Refused(f"{name}: it holds heads of up to 128 channels")

    monkeypatch.setattr(stepscope._library, "load", lambda: None)
    monkeypatch.setattr(stepscope._library, "bytes_of", refuses)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    heads = [proxy(1, 2, 8, 256, device="cuda:0") for _ in range(3)]
    assert "heads of up to 128" in why(LTORCH.scaled_dot_product_attention, *heads, is_causal=True)


def test_tensors_that_no_pack_fits_are_copied():
    aligned = torch.randn(4, 8)
    assert stepscope.thunder._readable(aligned) is aligned
    shifted = torch.randn(33)[1:].view(4, 8)
    for tensor in (shifted, torch.randn(8, 4).t()):
        copy_ = stepscope.thunder._readable(tensor)
        assert copy_.data_ptr() % 16 == 0 and copy_.is_contiguous() and torch.equal(copy_, tensor)


@pytest.mark.parametrize("asked, sentence", [
    (dict(adamw=True), "adamw is no op of a Thunder program"), (dict(loss="one_read"), "in place.*use kept_sum"),
    (dict(gelu=stepscope.op("gelu", check=False)(torch.tanh)), "kernel of its own"), (dict(layernorm="quick"), "no variant 'quick'"), (dict(name="a b", gelu=True), "identifier"),
])
def test_what_no_executor_holds_is_refused(asked, sentence):
    with pytest.raises(stepscope.Refused, match=sentence):
        stepscope.thunder.make(asked.pop("name", "refused"), **asked)


def test_an_executor_of_some_ops_runs_its_variants_and_leaves_the_others():
    seen = []

    def forward(x, weight, bias, variant):
        seen.append(variant)
        return KERNELS["layernorm_forward"](x, weight, bias, variant)

    compiled = jit(lambda x, w: F.gelu(F.layer_norm(x, (8,), w), approximate="tanh"), stepscope.thunder.make("norms", layernorm="block_per_row"))
    with wrong("layernorm_forward", forward):
        compiled(torch.randn(4, 8), torch.randn(8))
    assert seen == ["block_per_row"]
    assert [(r.op, r.taken_by) for r in stepscope.thunder.report(compiled).rows] == [("layer_norm", "norms")]


def test_report_says_what_it_needs():
    program = lambda x: x + 1  # noqa: E731
    with pytest.raises(stepscope.Refused, match="function was not made by thunder.jit"):
        stepscope.thunder.report(program)
    with pytest.raises(stepscope.Refused, match="has not run yet"):
        stepscope.thunder.report(jit(program))
    without, other = thunder.jit(program), jit(program)
    without(torch.ones(2)), other(torch.ones(2))
    with pytest.raises(stepscope.Refused, match="no executor of stepscope"):
        stepscope.thunder.report(without)
    assert "no op that these executors know" in str(stepscope.thunder.report(other))


def test_an_executor_that_stands_before_ours_is_named():
    first = stepscope.thunder.make("first", gelu=True)
    compiled = thunder.jit(lambda x: F.gelu(x, approximate="tanh"), executors=[first, stepscope.thunder.executor])
    compiled(torch.ones(2, 8))
    assert [(r.taken_by, r.why) for r in stepscope.thunder.report(compiled).rows] == [("first", "")]


# ---- on a device -------------------------------------------------------------------------------------------------------


def errors(found, truth):
    return [((a.double() - t).norm() / t.norm()).item() for a, t in zip(found, truth)]


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["float32", "autocast", "bfloat16"])
def test_a_model_on_the_device_is_as_near_to_float64_as_without(cuda, way):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=1021, block_size=128, n_layer=1, n_head=4, n_embd=256)).to(cuda)
    tokens, targets = (torch.randint(1021, (4, 128), device=cuda) for _ in range(2))
    exact = copy.deepcopy(model).double()
    if way == "bfloat16":
        model = model.bfloat16()

    def run(program, module):
        for p in module.parameters():
            p.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=way == "autocast" and module is model):
            loss = program(tokens, targets)[1]
        loss.backward()
        return [loss.detach()] + [p.grad.clone() for p in module.parameters()]

    without = thunder.jit(model, executors=[thunder.get_executor("sdpa")])  # not Inductor's loss, which takes long to compile
    truth, eager, plain = run(exact, exact), run(model, model), run(without, model)
    compiled = jit(model)
    ours = run(compiled, model)
    report = stepscope.thunder.report(compiled)
    assert len(report.rows) == 6 and all(r.taken_by == "stepscope" for r in report.rows), str(report)
    floor = 2.0**-20 if way == "float32" else 2.0**-7
    names = ["loss", *(n for n, _ in model.named_parameters())]
    for name, a, b, c in zip(names, errors(ours, truth), errors(eager, truth), errors(plain, truth)):
        assert a <= max(2 * b, 2 * c, floor), f"{name}: {a:.3g} from float64, PyTorch's own is {b:.3g}, Thunder's {c:.3g}"


@pytest.mark.gpu
def test_the_library_refuses_where_the_checker_does(cuda):
    for (slot, variant), by_type in stepscope.thunder.WIDEST.items():
        for dtype, limits in by_type.items():
            for widest, step in zip(limits, (16, 1)):
                taken, refused = (widest, widest + step) if step > 1 else (widest - 1, widest + 1)
                for channels in (taken, refused):
                    x, weight = (torch.randn(*s, device=cuda, dtype=dtypes.to_torch_dtype(dtype)) for s in ((4, channels), (channels,)))
                    forward = "block_per_row" if slot == "layernorm_backward" else variant
                    backward = "separate_columns" if slot == "layernorm_forward" else variant
                    leaf = x.clone().requires_grad_()

                    def run():
                        out = stepscope.functional.layer_norm(leaf, (channels,), weight, weight, layernorm_forward=forward, layernorm_backward=backward)
                        out.float().sum().backward()

                    if channels == taken:
                        run()
                    else:
                        with pytest.raises(stepscope.Refused, match=f"up to {widest} channels"):
                            run()


@pytest.mark.gpu
def test_heads_that_no_kernel_holds_stay_thunders(cuda):
    q = torch.randn(1, 2, 32, 256, device=cuda)
    compiled = jit(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), stepscope.thunder.make("flash", attention="flash"))
    torch.testing.assert_close(compiled(q), F.scaled_dot_product_attention(q, q, q, is_causal=True), rtol=1e-3, atol=1e-3)
    (row,) = stepscope.thunder.report(compiled).rows
    assert row.taken_by != "flash" and "heads of up to 128" in row.why
