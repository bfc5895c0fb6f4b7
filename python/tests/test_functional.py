"""Refusals and types of the functions, shape functions, torch.compile. On the CPU, with fake kernels."""
import copy
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import fake_kernels
import stepscope
from fake_kernels import KERNELS, wrong
from stepscope import functional as S
from stepscope._ops import packed

w, b = torch.ones(8), torch.zeros(8)
qkv = torch.randn(3, 1, 2, 4, 4)


@pytest.mark.parametrize("call, sentence", [
    (lambda: S.layer_norm(torch.randn(2, 8), (8,), w, b, 1e-6), "eps is 1e-06"),
    (lambda: S.layer_norm(torch.randn(2, 8), (8,)), "no weight"),
    (lambda: S.layer_norm(torch.randn(2, 2, 8), (2, 8), w, b), "last dimension"),
    (lambda: S.layer_norm(torch.randn(2, 8).half(), (8,), w, b), "x is float16"),
    (lambda: S.layer_norm(torch.randn(2, 8).bfloat16(), (8,), w, b), "bfloat16 with float32 weights"),
    (lambda: S.layer_norm(torch.randn(2, 8, dtype=torch.float64), (8,), w, b), "x is float64"),
    (lambda: S.gelu(torch.randn(2, 8), approximate="none"), "another function"),
    (lambda: S.gelu(torch.ones(2, 8, dtype=torch.int64)), "x is int64"),
    (lambda: S.scaled_dot_product_attention(*qkv), "is_causal is False"),
    (lambda: S.scaled_dot_product_attention(*qkv, is_causal=True, dropout_p=0.1), "dropout"),
    (lambda: S.scaled_dot_product_attention(*qkv, is_causal=True, scale=1.0), "scale is 1.0"),
    (lambda: S.scaled_dot_product_attention(*qkv, attn_mask=torch.ones(4, 4)), "mask"),
    (lambda: S.scaled_dot_product_attention(qkv[0], qkv[1][:, :, :2], qkv[2][:, :, :2], is_causal=True), "one shape"),
    (lambda: S.attention(torch.randn(1, 4, 20), 2), "expected .batch, tokens, 3"),
    (lambda: S.cross_entropy(torch.randn(4, 7), torch.zeros(4)), "target is float32"),
    (lambda: S.cross_entropy(torch.randn(4, 7), torch.zeros(3, dtype=torch.int64)), "expected .rows, classes"),
    (lambda: S.cross_entropy(torch.randn(4, 7), torch.zeros(4, dtype=torch.int64), label_smoothing=0.1), "label_smoothing"),
    (lambda: S.cross_entropy(torch.randn(4, 7), torch.zeros(4, dtype=torch.int64), reduction="sum"), "reduction"),
])
def test_what_no_kernel_takes_is_refused_with_a_sentence(call, sentence):
    with pytest.raises(stepscope.Refused, match=sentence):
        call()


def test_fp16_autocast_is_refused():
    with torch.autocast("cpu", dtype=torch.float16), pytest.raises(stepscope.Refused, match="autocast asks for float16"):
        S.layer_norm(torch.randn(2, 8), (8,), w, b)


@pytest.mark.parametrize("call, sentence", [
    (lambda: torch.ops.stepscope.gelu_forward(torch.randn(4, 6).t()), "strides"),
    (lambda: torch.ops.stepscope.layernorm_forward(torch.randn(4, 8), w, torch.zeros(7), "warp_per_row"), "shape .7,., expected .8,."),
    (lambda: torch.ops.stepscope.layernorm_forward(torch.randn(4, 8), w, b.bfloat16(), "warp_per_row"), "bias is bfloat16, expected float32"),
    (lambda: torch.ops.stepscope.layernorm_forward(torch.randn(4, 8), w.to("meta"), b, "warp_per_row"), "weight is on meta"),
    (lambda: torch.ops.stepscope.cross_entropy_kept_sum_forward(torch.randn(6, 4).t(), torch.arange(4), -100), "strides .1, 4. .* side by side"),
    (lambda: torch.ops.stepscope.cross_entropy_kept_sum_backward(torch.randn(1, 6).expand(4, 6), torch.randn(4, 2), torch.arange(4), torch.ones(()),
                                                                 -100), "strides .0, 1. .* overlap"),
    (lambda: torch.ops.stepscope.cross_entropy_forward(torch.randn(4, 9)[:, :8], torch.arange(4), 8, -100, "one_read"), "strides .9, 1."),
    (lambda: torch.ops.stepscope.attention_forward(torch.randn(1, 4, 30), 3, "flash"), "10 channels do not divide into 3 heads"),
])
def test_the_cuda_ops_check_every_tensor_before_the_library_sees_it(call, sentence, monkeypatch):
    # The functions behind the CUDA key, given CPU tensors: all their checks come before the first look at a device.
    import stepscope._ops as ops
    names = {k: v for k, v in ops._CUDA.items()}
    monkeypatch.setattr(torch, "ops", type("Ops", (), {"stepscope": type("Namespace", (), {k: staticmethod(v) for k, v in names.items()})}))
    with pytest.raises(stepscope.Refused, match=sentence):
        call()


def test_autocast_takes_the_stream_in_float32_and_gives_bfloat16():
    x = torch.randn(4, 8, requires_grad=True)
    weight = torch.ones(8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = S.layer_norm(x, (8,), weight, b)
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16 and x.grad.dtype == torch.float32 and weight.grad.dtype == torch.float32


@pytest.mark.parametrize("classifier", ["kept_sum", "one_read", "two_pass"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("classes", [7, 64])
def test_ignored_rows_upstream_and_padding_of_the_loss(dtype, classes, classifier):
    torch.manual_seed(0)
    logits = torch.randn(6, classes).to(dtype)
    targets = torch.tensor([1, -100, 3, 0, -100, 2])
    a, c = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    ours, own = S.cross_entropy(a, targets, classifier=classifier), F.cross_entropy(c.float(), targets)
    (ours * 3).backward()
    (own * 3).backward()
    torch.testing.assert_close(ours, own, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(a.grad, c.grad)
    assert torch.equal(a.detach(), logits), "the caller's logits were changed"


def test_a_second_backward_through_kept_sum_gives_the_gradient_again():
    logits = torch.randn(4, 7, requires_grad=True)
    loss = S.cross_entropy(logits, torch.arange(4))
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second) and first.abs().sum() > 0


def test_a_second_backward_through_one_read_is_refused_not_wrong():
    logits = torch.randn(4, 7, requires_grad=True)  # 7 columns: padded, so the copy becomes the gradient in place
    loss = S.cross_entropy(logits, torch.arange(4), classifier="one_read")
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def strided_rows(rows, columns, between):
    """Logits whose rows are not side by side; what lies between them would show in a result."""
    torch.manual_seed(0)
    padded = torch.full((rows, columns + between), float("nan"))
    padded[:, :columns] = torch.randn(rows, columns)
    return padded[:, :columns]


@pytest.mark.parametrize("tensor, pitch", [
    (torch.empty(4, 7), 7), (torch.empty(4, 9)[:, :7], 9), (torch.empty(4, 9)[:, 2:], 9), (torch.empty(8, 7)[::2], 14), (torch.empty(7, 4).t(), None),
    (torch.empty(4, 14)[:, ::2], None), (torch.empty(1, 7).expand(4, 7), None), (torch.empty(1, 7).expand(1, 7), 7), (torch.empty(0, 7), 7),
    (torch.empty(1, 4).t(), 1), (torch.empty(4, 9)[:, :1], 9), (torch.empty(20).as_strided((4, 7), (3, 1)), None),
])
def test_the_pitch_of_rows(tensor, pitch):
    from stepscope._ops import row_pitch
    assert row_pitch(tensor) == pitch


@pytest.mark.parametrize("make, copied", [(lambda: strided_rows(4, 7, 1), False), (lambda: strided_rows(4, 7, 0), False),
                                          (lambda: torch.randn(7, 4).t(), True), (lambda: torch.randn(1, 7).expand(4, 7), True)],
                         ids=["strided", "contiguous", "transposed", "expanded"])
def test_kept_sum_reads_rows_where_they_are_and_copies_others(make, copied):
    logits, targets, seen = make(), torch.tensor([1, -100, 3, 0]), []

    def spy(kernel):
        def call(logits, *a):
            seen.append(logits)
            return kernel(logits, *a)
        return call

    names = ("cross_entropy_kept_sum_forward", "cross_entropy_kept_sum_backward")
    a, c = logits.detach().requires_grad_(), logits.detach().clone().requires_grad_()
    with wrong(names[0], spy(KERNELS[names[0]])), wrong(names[1], spy(KERNELS[names[1]])):
        ours = torch.autograd.grad(S.cross_entropy(a, targets, classifier="kept_sum"), a)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(F.cross_entropy(c, targets), c)[0])
    assert len(seen) == 2 and all((t.data_ptr() != logits.data_ptr()) == copied for t in seen)
    assert all(t.stride(0) == (7 if copied else logits.stride(0)) for t in seen)


class PaddedByInductor:
    """Inductor's pass that pads products, on for every device: on a GPU it decides by timing."""

    def __enter__(self):
        from torch._inductor import config
        from torch._inductor.fx_passes import pad_mm
        self.patches = [pytest.MonkeyPatch()]
        for name in ("check_device", "has_triton"):
            self.patches[0].setattr(pad_mm, name, lambda *a: True)
        self.config = config.patch(shape_padding=True, force_shape_pad=True, force_disable_caches=True)
        self.config.__enter__()

    def __exit__(self, *what):
        self.config.__exit__(*what)
        self.patches[0].undo()


class Head(torch.nn.Module):
    """The end of a GPT-2: logits of a width that Inductor pads, given back beside their loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(67, 32))

    def forward(self, x, targets):
        logits = F.linear(x, self.weight)
        return logits, S.cross_entropy(logits.view(-1, 67), targets.view(-1), classifier="kept_sum")


def test_a_compiled_program_hands_kept_sum_its_padded_logits_without_a_copy():
    head, x, targets, pitches = Head(), torch.randn(2, 16, 32), torch.randint(67, (2, 16)), []

    def spy(kernel):
        def call(logits, *a):
            pitches.append(logits.stride())
            return kernel(logits, *a)
        return call

    head(x, targets)[1].backward()
    eager, head.weight.grad = head.weight.grad, None
    names = ("cross_entropy_kept_sum_forward", "cross_entropy_kept_sum_backward")
    torch._dynamo.reset()
    with PaddedByInductor(), wrong(names[0], spy(KERNELS[names[0]])), wrong(names[1], spy(KERNELS[names[1]])):
        torch.compile(head, fullgraph=True)(x, targets)[1].backward()
    assert pitches == [(68, 1), (68, 1)], "67 columns in rows of 68, the pitch of Inductor's product"
    torch.testing.assert_close(head.weight.grad, eager, rtol=1e-4, atol=1e-5)


def test_packed_attention_is_that_of_pytorch():
    q, k, v = (torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3))
    ours = S.scaled_dot_product_attention(q, k, v, is_causal=True)
    own = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours, own)
    g = torch.randn_like(own)
    for a, c in zip(torch.autograd.grad(ours, (q, k, v), g), torch.autograd.grad(own, (q, k, v), g)):
        torch.testing.assert_close(a, c)


def test_parts_of_one_projection_are_read_where_they_are_and_others_are_packed():
    qkv = torch.randn(2, 5, 3 * 8, requires_grad=True)
    q, k, v = S.heads_of(qkv, 2)
    assert packed(q, k, v).data_ptr() == qkv.data_ptr() and torch.equal(packed(q, k, v), qkv)
    for order in ((k, q, v), (q, k, k), (q.contiguous(), k, v), (q.clone(), k.clone(), v.clone())):
        made = packed(*order)
        assert made.untyped_storage().data_ptr() != qkv.untyped_storage().data_ptr()
        assert torch.equal(made, torch.cat([t.transpose(1, 2).reshape(2, 5, 8) for t in order], 2))
    other = torch.randn(2, 5, 3 * 8)
    assert torch.equal(packed(q, S.heads_of(other, 2)[1], v)[..., 8:16], other[..., 8:16])
    ours = torch.autograd.grad(S.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum(), qkv)[0]
    own = torch.autograd.grad(F.scaled_dot_product_attention(*S.heads_of(qkv, 2), is_causal=True).square().sum(), qkv)[0]
    torch.testing.assert_close(ours, own)


def test_the_gradient_of_a_projection_is_not_put_together_from_its_parts(monkeypatch):
    linear = torch.nn.Linear(8, 24)
    x = torch.randn(2, 5, 8)
    made = []
    monkeypatch.setattr(S, "_Attention", type("Spy", (S._Attention,), {"forward": staticmethod(
        lambda ctx, qkv, *a: (made.append(tuple(qkv.shape)), S._Attention.__mro__[1].forward(ctx, qkv, *a))[1])}))
    parts = S.heads_of(linear(x), 2)
    ours = torch.autograd.grad(S.scaled_dot_product_attention(*parts, is_causal=True).square().sum(), linear.weight)[0]
    assert made == [(2, 5, 24)]
    own = torch.autograd.grad(F.scaled_dot_product_attention(*S.heads_of(linear(x), 2), is_causal=True).square().sum(), linear.weight)[0]
    torch.testing.assert_close(ours, own)


@pytest.mark.parametrize("change, runs", [(lambda parts: parts, "_Attention"), (lambda parts: (parts[1], parts[0], parts[2]), "_Sdpa")])
def test_a_recorded_attention_runs_as_it_ran(monkeypatch, change, runs):
    parts = change(S.heads_of(torch.nn.Linear(8, 24)(torch.randn(2, 5, 8)), 2))
    with S.recorded() as calls:
        S.scaled_dot_product_attention(*parts, is_causal=True)
    ran = []
    for name in ("_Attention", "_Sdpa"):
        apply = getattr(S, name).apply
        monkeypatch.setattr(S, name, type("Spy", (), {"apply": staticmethod(lambda *a, name=name, apply=apply: (ran.append(name), apply(*a))[1])}))
    calls[0].run(*calls[0].tensors)
    assert ran == [runs]


@pytest.mark.parametrize("change", [lambda q, k, v: (q.detach(), k, v), lambda q, k, v: (q.detach().requires_grad_(), k, v),
                                    lambda q, k, v: (q * 2, k, v), lambda q, k, v: (k, q, v), lambda q, k, v: (q, v, k)])
def test_parts_that_are_not_all_of_a_projection_keep_their_own_gradients(change):
    linear, x = torch.nn.Linear(8, 24), torch.randn(2, 5, 8)

    def gradient(attention):
        return torch.autograd.grad(attention(*change(*S.heads_of(linear(x), 2)), is_causal=True).square().sum(), linear.weight)[0]

    torch.testing.assert_close(gradient(S.scaled_dot_product_attention), gradient(F.scaled_dot_product_attention))


class Turned(torch.autograd.Function):
    """Gives its input back and turns the gradient, as adversarial trainings do."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -0.1 * gradient


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_function_between_a_projection_and_its_part_keeps_its_gradient(at):
    linear, x = torch.nn.Linear(8, 24), torch.randn(2, 5, 8)

    def gradient(attention):
        parts = list(S.heads_of(linear(x), 2))
        parts[at] = Turned.apply(parts[at])
        return torch.autograd.grad(attention(*parts, is_causal=True).square().sum(), linear.weight)[0]

    torch.testing.assert_close(gradient(S.scaled_dot_product_attention), gradient(F.scaled_dot_product_attention))


@pytest.mark.parametrize("change", [lambda q: q.register_hook(lambda g: g * 0), lambda q: q.retain_grad()], ids=["hook", "retain_grad"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_hook_at_a_part_of_a_projection_and_its_kept_gradient_are_those_of_pytorch(at, change):
    linear, x, found = torch.nn.Linear(8, 24), torch.randn(2, 5, 8), []
    for attention in (S.scaled_dot_product_attention, F.scaled_dot_product_attention):
        linear.zero_grad()
        parts = S.heads_of(linear(x), 2)
        change(parts[at])
        attention(*parts, is_causal=True).square().sum().backward()
        found.append((linear.weight.grad, parts[at].grad if parts[at].retains_grad else torch.zeros(())))
    torch.testing.assert_close(*found)


def test_parts_taken_where_autograd_does_not_look_give_the_projection_no_gradient():
    linear = torch.nn.Linear(8, 24)
    projected = linear(torch.randn(2, 5, 8))
    with torch.no_grad():
        parts = S.heads_of(projected, 2)
    assert parts[0]._base is not None
    for attention in (F.scaled_dot_product_attention, S.scaled_dot_product_attention):
        loss = attention(*parts, is_causal=True).square().sum()
        assert torch.autograd.grad(loss, linear.weight, allow_unused=True)[0] is None


@pytest.mark.parametrize("dtype, there, wanted", [(torch.bfloat16, True, "cudnn"), (torch.bfloat16, False, "flash"),
                                                  (torch.float32, True, "flash")])
def test_attention_without_a_variant_is_cudnn_in_bfloat16_where_there_is_one(monkeypatch, dtype, there, wanted):
    monkeypatch.setattr(S, "has_cudnn", lambda: there)
    asked = []

    def forward(qkv, heads, variant):
        asked.append(variant)
        return KERNELS["attention_forward"](qkv, heads, variant)

    with wrong("attention_forward", forward):
        S.attention(torch.randn(1, 4, 24, dtype=dtype), 2)
        S.scaled_dot_product_attention(*S.heads_of(torch.randn(1, 4, 24, dtype=dtype), 2), is_causal=True)
        S.attention(torch.randn(1, 4, 24, dtype=dtype), 2, attention_forward="unfused")
    assert asked == [wanted, wanted, "unfused"]


OPCHECKS = [
    ("layernorm_forward", lambda: (torch.randn(3, 8), w, b, "warp_per_row")),
    ("layernorm_forward", lambda: (torch.randn(3, 8), w.bfloat16(), b.bfloat16(), "warp_per_row")),
    ("layernorm_backward", lambda: (torch.randn(3, 8), torch.randn(3, 8), torch.randn(3), torch.rand(3), w, False, "fused_rows")),
    ("gelu_forward", lambda: (torch.randn(3, 5),)),
    ("gelu_backward", lambda: (torch.randn(3, 5), torch.randn(3, 5))),
    ("attention_forward", lambda: (torch.randn(2, 5, 24), 2, "flash")),
    ("attention_backward", lambda: (torch.randn(2, 5, 8), torch.randn(2, 5, 24), torch.randn(2, 5, 8), torch.randn(2, 2, 5), 2, "flash")),
    ("sdpa_forward", lambda: (*S.heads_of(torch.randn(2, 5, 24), 2), "flash")),
    ("sdpa_backward", lambda: (torch.randn(2, 5, 8), *S.heads_of(torch.randn(2, 5, 24), 2), torch.randn(2, 5, 8), torch.randn(2, 2, 5), "flash")),
    ("cross_entropy_forward", lambda: (torch.randn(4, 8), torch.arange(4), 7, -100, "one_read")),
    ("cross_entropy_kept_sum_forward", lambda: (torch.randn(4, 7), torch.arange(4), -100)),
    ("cross_entropy_kept_sum_backward", lambda: (torch.randn(4, 7), torch.randn(4, 2), torch.arange(4), torch.ones(()), -100)),
    ("cross_entropy_backward", lambda: (torch.randn(4, 8), torch.arange(4), torch.tensor(1.0), 7, -100, "one_read")),
]


@pytest.mark.parametrize("name, make", OPCHECKS, ids=[f"{i}-{n}" for i, (n, _) in enumerate(OPCHECKS)])
def test_schemas_and_shape_functions_hold(name, make):
    torch.library.opcheck(getattr(torch.ops.stepscope, name).default, make(), test_utils=("test_schema", "test_faketensor"))


def test_a_compiled_model_has_no_graph_break_and_the_same_gradients(tiny, batch):
    stepscope.replace(tiny)
    tiny(*batch)[1].backward()
    eager = {n: p.grad.clone() for n, p in tiny.named_parameters()}
    tiny.zero_grad()
    torch._dynamo.reset()
    torch.compile(tiny, backend="aot_eager", fullgraph=True)(*batch)[1].backward()
    for name, p in tiny.named_parameters():
        torch.testing.assert_close(p.grad, eager[name], rtol=1e-4, atol=1e-6)


def test_a_compiled_program_asks_for_cudnn_while_it_is_compiled(monkeypatch):
    asked = []
    monkeypatch.setattr("stepscope._library.bytes_of", lambda *a: asked.append(a))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + fake_kernels.real_has_cudnn(), backend="eager", fullgraph=True)
    assert [compiled(torch.zeros(1)).item() for _ in range(2)] == [1, 1] and len(asked) == 1


def test_dynamo_does_not_look_into_an_own_kernel():
    compiling = []

    def kernel(x):
        compiling.append(torch.compiler.is_compiling())
        return F.gelu(x, approximate="tanh")

    own, x = stepscope.op("gelu", device="cpu", check=False)(kernel), torch.randn(4)
    for gelu in (own, copy.deepcopy(own)):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(lambda x: gelu(x * 2) + 1, backend="eager")(x), kernel(x * 2) + 1)
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda x: gelu(x * 2) + 1, backend="eager", fullgraph=True)(x)
    assert compiling == [False] * 4


def test_without_lightning_thunder_its_executor_says_which_package_is_missing(monkeypatch):
    monkeypatch.delitem(sys.modules, "stepscope.thunder", raising=False)
    monkeypatch.delitem(vars(stepscope), "thunder", raising=False)
    monkeypatch.setitem(sys.modules, "thunder", None)  # an import of it fails
    with pytest.raises(ImportError, match="pip install lightning-thunder"):
        stepscope.thunder
    with pytest.raises(AttributeError, match="no attribute 'thunderx'"):
        stepscope.thunderx


@pytest.mark.parametrize("transformed", [
    lambda x: torch.func.grad(lambda x: S.gelu(x).sum())(x), lambda x: torch.func.jvp(S.gelu, (x,), (x,)), torch.vmap(S.gelu),
    torch.vmap(lambda x: S.layer_norm(x, (8,), w, b)), torch.vmap(lambda x: S.attention(x.view(1, 1, 24), 2)),
    torch.vmap(lambda x: S.cross_entropy(x.view(3, 8), torch.arange(3))),
    torch.vmap(lambda x: S.scaled_dot_product_attention(*x.view(3, 1, 2, 1, 4), is_causal=True)),
    torch.vmap(stepscope.op("gelu", device="cpu", check=False)(lambda x: F.gelu(x, approximate="tanh"))),
])
def test_transforms_of_torch_func_are_refused_with_the_way_out(transformed):
    with pytest.raises(stepscope.Refused, match="(gelu|layernorm|attention|loss): it was called inside torch.func or torch.vmap.*report.off"):
        transformed(torch.randn(2, 3, 8))


@pytest.mark.parametrize("op", ["gelu", "layernorm", "loss", "one_read", "attention", "packed attention"])
def test_a_second_derivative_is_refused_and_a_first_with_create_graph_is_not(op):
    S = stepscope.functional
    x = torch.randn(4, 12, generator=torch.Generator().manual_seed(2)).requires_grad_()
    views = lambda x: [t.view(1, 4, 2, 2).transpose(1, 2) for t in x.split(4, dim=1)]
    ours, own = {
        "gelu": (S.gelu, lambda x: F.gelu(x, approximate="tanh")),
        "layernorm": (lambda x: S.layer_norm(x, (12,), torch.ones(12)), lambda x: F.layer_norm(x, (12,), torch.ones(12))),
        "loss": (lambda x: S.cross_entropy(x, torch.arange(4)), lambda x: F.cross_entropy(x, torch.arange(4))),
        "one_read": (lambda x: S.cross_entropy(x, torch.arange(4), classifier="one_read"), lambda x: F.cross_entropy(x, torch.arange(4))),
        "attention": (lambda x: S.scaled_dot_product_attention(*(3 * v for v in views(x)), is_causal=True),
                      lambda x: F.scaled_dot_product_attention(*(3 * v for v in views(x)), is_causal=True)),
        "packed attention": (lambda x: S.attention(x[None], 2)[0],
                             lambda x: F.scaled_dot_product_attention(*views(x), is_causal=True).transpose(1, 2).reshape(4, 4)),
    }[op]
    # The upstream gradient is a constant, the case in which nothing but the saved tensors depends on x.
    weights = torch.linspace(1, 2, own(x).numel()).view_as(own(x))
    gradient, = torch.autograd.grad((ours(x) * weights).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient, torch.autograd.grad((own(x) * weights).sum(), x)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(stepscope.Refused, match="a gradient of a gradient was asked for"):
        torch.autograd.grad((gradient**2).sum(), x)


def test_a_first_derivative_with_create_graph_reads_what_a_checkpoint_kept_once():
    x, found = torch.randn(4, 8, requires_grad=True), []
    for norm, gelu in ((S.layer_norm, S.gelu), (F.layer_norm, lambda x: F.gelu(x, approximate="tanh"))):
        out = checkpoint(lambda x: gelu(norm(x, (8,), w, b)), x, use_reentrant=False)
        found += torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
