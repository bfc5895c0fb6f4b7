"""check(), bench(), own kernels: a right op passes, a wrong one is refused with the row that shows it. On the CPU, with fake kernels."""
import math

import pytest
import torch

import stepscope
from stepscope import _check
from stepscope import _reference as reference
from fake_kernels import KERNELS, wrong


def test_right_kernels_pass_in_float32_and_under_autocast(tiny, batch):
    stepscope.replace(tiny)
    report = stepscope.check(tiny, batch)
    assert report.ok and {r.op for r in report.rows} == {"layernorm", "gelu", "attention", "loss"}
    assert {r.tensor for r in report.rows if r.op == "layernorm"} == {"out", "dx", "dweight", "dbias"}
    assert any(r.site == "transformer.h.1.ln_2" for r in report.rows) and any(r.site == "hostile rows" for r in report.rows)
    assert "PyTorch's" in str(report)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert stepscope.check(tiny, batch).ok


def scaled(name, factor):
    return lambda *a: KERNELS[name](*a) * factor


def forgets_a_row(x):
    out = KERNELS["gelu_forward"](x)
    out.view(-1, out.shape[-1])[3] = 0
    return out


def biased_gradient(*a):
    dinp, dweight, dbias = KERNELS["layernorm_backward"](*a)
    return dinp, dweight * 1.0001, dbias


def one_bad_number(*a):
    out, lse = KERNELS["attention_forward"](*a)
    out[0, 5, 3] = math.nan
    return out, lse


def ignores_upstream(logits, kept, targets, upstream, ignored):
    return KERNELS["cross_entropy_kept_sum_backward"](logits, kept, targets, torch.ones(()), ignored)


def shifted_exponent(x, weight, bias, variant):
    # E[x^2] - E[x]^2 in float32: right for ordinary rows, wrong where the mean is large against the spread.
    var = (x * x).mean(1) - x.mean(1) ** 2
    rstd = (var + 1e-5).rsqrt()
    return (x - x.mean(1, keepdim=True)) * rstd[:, None] * weight + bias, x.mean(1), rstd, x.new_empty(0)


@pytest.mark.parametrize("name, kernel, op, tensor, where", [
    ("gelu_forward", forgets_a_row, "gelu", "out", "row 3 "),
    ("layernorm_backward", biased_gradient, "layernorm", "dweight", ""),
    ("attention_forward", one_bad_number, "attention", "out", "row 5 column 3: nan"),
    ("cross_entropy_kept_sum_backward", ignores_upstream, "loss", "dlogits", ""),
    ("layernorm_forward", shifted_exponent, "layernorm", "out", ""),
    ("gelu_backward", scaled("gelu_backward", 1.00001), "gelu", "dx", ""),
])
def test_a_wrong_kernel_is_found_with_its_op_tensor_and_row(tiny, batch, name, kernel, op, tensor, where):
    stepscope.replace(tiny)
    with wrong(name, kernel), pytest.raises(stepscope.CheckFailed) as failed:
        stepscope.check(tiny, batch)
    bad = [r for r in failed.value.rows if not r.ok]
    assert {(r.op, r.tensor) for r in bad} >= {(op, tensor)}
    assert any(where in r.worst for r in bad if r.tensor == tensor)
    assert "WORSE" in str(failed.value) and op in str(failed.value)


def test_only_the_hostile_rows_find_the_variance_by_subtraction(tiny, batch):
    stepscope.replace(tiny, layernorm=True)
    with wrong("layernorm_forward", shifted_exponent), pytest.raises(stepscope.CheckFailed) as failed:
        stepscope.check(tiny, batch)
    assert {r.site for r in failed.value.rows if not r.ok} == {"hostile rows"}


def hostile_layernorm(kernel):
    """The rows of compare() for a float32 layernorm on hostile rows."""
    generator = torch.Generator().manual_seed(7)
    tensors = torch.randn(37, 768, generator=generator), 1 + 0.1 * torch.randn(768, generator=generator), 0.1 * torch.randn(768, generator=generator)
    return {r.tensor: r for r in _check.compare(_check.hostile("layernorm", tensors, {"storage": torch.float32}, kernel))}


def normalized(x, mean, weight, bias):
    centred = (x.double() - mean).float()  # as a fused multiply-add leaves it
    return centred / ((centred * centred).mean(1, keepdim=True) + 1e-5).sqrt() * weight + bias


def test_a_mean_by_the_reciprocal_is_right_and_one_that_is_a_little_off_is_not():
    # Triton's `/`: the sum times the rounded 1/768. 7.25 is off by 2e-7 then, and 1/sqrt(eps) makes 7e-5 of it.
    reciprocal = torch.tensor(1 / 768).double()
    out = hostile_layernorm(lambda x, w, b: normalized(x, x.double().sum(1, keepdim=True) * reciprocal, w, b))["out"]
    assert out.ok and out.error > 10 * 2.0**-20
    off = hostile_layernorm(lambda x, w, b: normalized(x, x.double().mean(1, keepdim=True) * (1 + 2.0**-20), w, b))["out"]
    assert not off.ok


def attention_rounded_by(rounded):
    """Causal attention in float64 whose scores pass through `rounded` in forward and backward."""
    def kernel(qkv):
        q, k, v = stepscope.functional.heads_of(qkv.double(), 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        scores = scores + (rounded(scores) - scores).detach()
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        out = scores.masked_fill(future, -math.inf).softmax(3) @ v
        return out.transpose(1, 2).reshape(*qkv.shape[:2], -1).to(qkv.dtype)
    return kernel


@pytest.mark.parametrize("bits, ok", [(24, True), (13, False), (11, False)])
def test_scores_of_float32_pass_on_hostile_rows_and_coarser_ones_do_not(bits, ok):
    def rounded(s):
        mantissa, exponent = torch.frexp(s)
        return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)

    call = _check.hostile("attention", (torch.randn(2, 8, 768),), {"heads": 4}, attention_rounded_by(rounded))
    assert all(r.ok for r in _check.compare(call)) == ok


def test_gradients_of_scores_may_lose_what_float32_loses_between_two_equal_sums():
    """A float32 attention that sums term after term: beyond twice PyTorch's error on an H200 (5.2e-6 of 1.85e-6), right all the same."""
    class Sequential(torch.autograd.Function):
        @staticmethod
        def forward(ctx, qkv):
            q, k, v = stepscope.functional.heads_of(qkv, 4)
            s = product(q, k.transpose(2, 3)) / 8
            s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
            lse = s.logsumexp(3, keepdim=True)
            out = product(s.softmax(3), v)
            ctx.save_for_backward(q, k, v, s, lse, out)
            return out.transpose(1, 2).reshape(*qkv.shape[:2], -1)

        @staticmethod
        def backward(ctx, upstream):
            q, k, v, s, lse, out = ctx.saved_tensors
            d = upstream.view(*upstream.shape[:2], 4, -1).transpose(1, 2)
            p = (s - lse).exp()
            delta = product(d.unsqueeze(3), out.unsqueeze(4)).squeeze(4)
            ds = p * (product(d, v.transpose(2, 3)) - delta) / 8
            parts = product(ds, k), product(ds.transpose(2, 3), q), product(p.transpose(2, 3), d)
            return torch.cat([t.transpose(1, 2).reshape(upstream.shape) for t in parts], 2)

    def product(a, b):
        total = torch.zeros(*a.shape[:-1], b.shape[-1])
        for i in range(a.shape[-1]):
            total = total + a[..., i:i + 1] * b[..., i:i + 1, :]
        return total

    call = _check.hostile("attention", (torch.randn(2, 8, 768),), {"heads": 4}, Sequential.apply)
    assert all(r.ok for r in _check.compare(call))
    upstream = reference.upstream_for(call, 0)
    truth = reference.forward_and_gradients(reference.function_of("attention", call.settings), reference.converted(call, torch.float64), upstream)
    whole, rows = _check.moved_by_rounding(call, upstream, truth)[1]
    # Ours on an H200: 5.2e-6 over the tensor, 1.1e-4 in row 6; a product by TF32 is off by 1.9e-3.
    assert 5.2e-6 < 2 * whole < 5e-5 and 1.1e-4 < 2 * rows[6] < 1e-3 and rows.argmax() == 6


def test_a_model_without_a_replaced_op_and_a_dead_batch_are_refused(tiny, batch):
    with pytest.raises(stepscope.StepscopeError, match="call replace"):
        stepscope.check(tiny, batch)
    stepscope.replace(tiny, gelu=True)
    with torch.no_grad():
        tiny.lm_head.weight.mul_(1e3)
        tokens = batch[0]
        answer = tiny(tokens)[0].argmax(-1)
    with pytest.raises(stepscope.Refused, match="too small to compare"):
        stepscope.check(tiny, (tokens, answer))


@pytest.mark.parametrize("kernel", [lambda logits, targets, ignored: (logits.new_zeros(()), logits.new_zeros(len(logits), 2)), None],
                         ids=["wrong", "right"])
def test_a_loss_whose_first_rows_do_not_count_is_compared_where_they_do(kernel):
    class Head(torch.nn.Module):
        def forward(self, logits, targets):
            return torch.nn.functional.cross_entropy(logits, targets)

    model, logits, targets = Head(), torch.randn(40, 7), torch.full((40,), -100)
    stepscope.replace(model, loss=True)
    with pytest.raises(stepscope.Refused, match="^loss: PyTorch's answer .* is not finite in float64 either.*; give another batch$"):
        stepscope.check(model, (logits, targets))
    targets[30:] = 3
    with wrong("cross_entropy_kept_sum_forward", kernel or KERNELS["cross_entropy_kept_sum_forward"]):
        if kernel is None:
            rows = stepscope.check(model, (logits, targets), most_loss_rows=16, hostile_rows=False).rows
            assert rows[0].shape == (10, 7) and 0 < rows[0].budget < 1
        else:
            with pytest.raises(stepscope.CheckFailed, match="row 0 column 0: 0, truth"):
                stepscope.check(model, (logits, targets), most_loss_rows=16, hostile_rows=False)


def test_an_answer_that_is_no_number_fails_also_where_pytorchs_overflows():
    # The squares are beyond float32: PyTorch's error is infinite in its own type, and so would be twice that.
    x, weight, bias = torch.tensor([[3e38, -3e38, 1e38, 0.0]]), torch.ones(4), torch.zeros(4)

    def rows(kernel):
        return _check.compare(stepscope.functional.Call("layernorm", (x, weight, bias), {"storage": torch.float32}, kernel))

    assert not math.isfinite(rows(norm)[0].torch_error) and not rows(norm)[0].ok
    assert rows(lambda x, w, b: norm(x.double(), w.double(), b.double()).float())[0].ok


def test_bench_has_a_row_for_each_op_and_the_step(tiny, batch):
    report = stepscope.replace(tiny)
    bench = stepscope.bench(tiny, batch, report=report, blocks=2, step_block_ms=5, optimizer=lambda p: torch.optim.SGD(p, 1e-3))
    assert [r.what.split()[0] for r in bench.rows] == ["layernorm", "attention", "gelu", "loss", "step"]
    for r in bench.rows:
        assert r.low <= r.ratio <= r.high and r.ours_ms > 0 and r.torch_ms > 0
    assert "undecided" in str(bench) or "faster" in str(bench) or "slower" in str(bench)


def test_bench_leaves_the_model_as_it_was(tiny, batch):
    report = stepscope.replace(tiny)
    tiny(*batch)[1].backward()
    before = [(p.detach().clone(), p.grad.clone()) for p in tiny.parameters()]
    slow = []
    with wrong("gelu_forward", lambda x: (slow.append(1), KERNELS["gelu_forward"](x))[1]):
        row, = stepscope.bench(tiny, batch, report=report, ops=False, blocks=1, step_block_ms=1, optimizer=lambda p: torch.optim.SGD(p, 0.1)).rows
    assert slow and row.what == "step", "one arm has our ops"
    for p, (value, gradient) in zip(tiny.parameters(), before):
        assert torch.equal(p, value) and torch.equal(p.grad, gradient)


def test_bench_takes_a_mapping_as_check_does(tiny, batch):
    import collections
    report = stepscope.replace(tiny)
    row, = stepscope.bench(tiny, collections.UserDict(tokens=batch[0], targets=batch[1]), report=report, ops=False, blocks=1, step_block_ms=1).rows
    assert row.shape == "2x16"


def test_bench_sees_which_arm_is_slower(tiny, batch):
    import time
    report = stepscope.replace(tiny, gelu=True)

    def slow(x):
        time.sleep(0.01)
        return KERNELS["gelu_forward"](x)

    with wrong("gelu_forward", slow):
        row = stepscope.bench(tiny, batch, report=report, blocks=3, step_block_ms=5).rows[0]
    assert row.verdict == "slower" and row.ours_ms > 10


# ---- own kernels ------------------------------------------------------------------------------------------------------


def right(x, weight, bias):
    mean = x.double().mean(-1, keepdim=True)
    rstd = (x.double().var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    return ((x - mean) * rstd * weight + bias).to(x.dtype)


def test_a_right_callable_is_taken_and_replaces(tiny, batch):
    before = tiny(*batch)[1].item()
    mine = stepscope.op("layernorm", device="cpu")(right)
    assert mine.report.ok
    report = stepscope.replace(tiny, layernorm=mine)
    assert all("own kernel right" in s.variants for s in report.replaced)
    loss = tiny(*batch)[1]
    loss.backward()
    assert loss.item() == pytest.approx(before, rel=1e-6)
    assert stepscope.check(tiny, batch).ok


def test_a_callable_that_autograd_cannot_follow_gets_pytorchs_gradient(tiny, batch):
    with torch.no_grad():
        opaque = stepscope.op("gelu", device="cpu", dtypes=[torch.float32])(lambda x: KERNELS["gelu_forward"](x.detach()))
    tiny(*batch)[1].backward()
    own = tiny.transformer.wte.weight.grad.clone()
    tiny.zero_grad()
    stepscope.replace(tiny, gelu=opaque)
    tiny(*batch)[1].backward()
    torch.testing.assert_close(tiny.transformer.wte.weight.grad, own, rtol=1e-4, atol=1e-7)


def test_a_type_whose_rounding_no_check_knows_is_refused_by_name():
    with pytest.raises(stepscope.Refused, match="gelu: its tensors are float16; a check knows the rounding of"):
        stepscope.op("gelu", device="cpu", dtypes=[torch.float16])(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    mine = stepscope.op("gelu", device="cpu", dtypes=[torch.float32])(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(approximate="tanh"))
    stepscope.replace(model, gelu=mine)
    with torch.autocast("cpu", dtype=torch.float16), pytest.raises(stepscope.Refused, match="are float16"):
        stepscope.check(model, torch.randn(2, 4))


def without_eps(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / x.std(-1, unbiased=False, keepdim=True).clamp_min(1e-8) * weight + bias


def test_a_wrong_callable_is_refused_with_the_row_that_shows_it():
    with pytest.raises(stepscope.CheckFailed, match="is refused") as failed:
        stepscope.op("layernorm", device="cpu")(without_eps)
    bad = [r for r in failed.value.rows if not r.ok]
    # The row of small numbers (row 5) is where eps matters.
    assert any(r.site == "hostile rows" and r.tensor == "out" and r.worst.startswith("row 5 ") for r in bad)


def test_a_wrong_backward_is_refused_though_the_forward_is_right():
    with pytest.raises(stepscope.CheckFailed) as failed:
        stepscope.op("gelu", device="cpu", backward=lambda d, x: d * torch.sigmoid(1.702 * x))(lambda x: KERNELS["gelu_forward"](x))
    assert {r.tensor for r in failed.value.rows if not r.ok} == {"dx"}


def norm_without_gradient(x, weight, bias):
    with torch.no_grad():
        normal = torch.nn.functional.layer_norm(x, x.shape[-1:])
    return normal * weight + bias


def norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


@pytest.mark.parametrize("kernel, settings, missing", [
    (norm_without_gradient, {}, {"dx"}), (norm, {"backward": lambda *a: (None, None, None)}, {"dx", "dweight", "dbias"}),
    (lambda x, w, b: (norm(x, w, b) > 0).int(), {}, None), (lambda x, w, b: norm(x, w, b).detach().requires_grad_(), {}, {"dx", "dweight", "dbias"}),
])
def test_a_gradient_that_is_none_is_a_row_of_the_table(kernel, settings, missing):
    with pytest.raises(stepscope.CheckFailed, match="no gradient: the kernel's backward gave none") as failed:
        stepscope.op("layernorm", device="cpu", **settings)(kernel)
    if missing is not None:
        assert {r.tensor for r in failed.value.rows if not r.ok} == missing


def writes_its_input(x):
    y = torch.nn.functional.gelu(x, approximate="tanh")
    with torch.no_grad():
        x.zero_()
    return y


def fails(x):
    raise KeyError("BLOCK")


@pytest.mark.parametrize("kernel, sentence", [
    (lambda x: x.mul_(0.5), "stepscope.op gelu .*refused: it raised RuntimeError .37x3072, float32.: a leaf Variable that requires grad"),
    (writes_its_input, "stepscope.op gelu writes_its_input> is refused: it changes x, which is its input and the model's"),
    (fails, "gelu fails> is refused: it raised KeyError .37x3072, float32.: 'BLOCK'"),
])
def test_a_kernel_that_raises_or_writes_its_input_is_named(kernel, sentence):
    with pytest.raises(stepscope.CheckFailed, match=sentence):
        stepscope.op("gelu", device="cpu")(kernel)


def test_an_unchecked_kernel_that_autograd_follows_in_part_does_not_train():
    unchecked = stepscope.op("layernorm", device="cpu", check=False)
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)), torch.randn(3, 8)
    report = stepscope.replace(model, layernorm=unchecked(norm_without_gradient))
    with pytest.raises(stepscope.Refused, match="norm_without_gradient>: autograd finds no way from the answer to x; compute all of it"):
        model(x)
    with torch.no_grad():
        torch.testing.assert_close(model(x), report.model[1](model[0](x)))
    report.undo()
    stepscope.replace(model, layernorm=unchecked(norm))
    model(x).square().sum().backward()
    assert model[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind, kernel", [
    ("attention", lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)),
    ("loss", lambda logits, targets, ignore_index: torch.nn.functional.cross_entropy(logits.float(), targets, ignore_index=ignore_index)),
])
def test_other_kinds_are_taken(tiny, batch, kind, kernel):
    before = tiny(*batch)[1].item()
    stepscope.replace(tiny, **{kind: stepscope.op(kind, device="cpu")(kernel)})
    assert tiny(*batch)[1].item() == pytest.approx(before, rel=1e-5)
    assert stepscope.check(tiny, batch).ok


def test_an_own_kernel_is_given_the_form_that_it_was_checked_in():
    seen = []

    def in_rows(x, weight, bias):
        rows, channels = x.shape
        seen.append((rows, channels, x.is_contiguous()))
        return right(x, weight, bias)

    mine, x = stepscope.op("layernorm", device="cpu", check=False)(in_rows), torch.randn(3, 8, 2).transpose(1, 2)
    weight = torch.ones(8)
    torch.testing.assert_close(mine(x, (8,), weight), torch.nn.functional.layer_norm(x, (8,), weight))
    gelu = stepscope.op("gelu", device="cpu", check=False)(lambda x: (seen.append((*x.shape, x.is_contiguous())), KERNELS["gelu_forward"](x))[1])
    for given in (x, x[0, 0], x[:0], x[0, 0, 0]):
        torch.testing.assert_close(gelu(given), torch.nn.functional.gelu(given, approximate="tanh"))
    loss = stepscope.op("loss", device="cpu", check=False)(
        lambda logits, targets: (seen.append((*logits.shape, logits.is_contiguous() and targets.is_contiguous())), logits.sum())[1])
    loss(torch.randn(4, 9)[:, :7], torch.arange(8)[::2])
    assert seen == [(6, 8, True), (6, 8, True), (1, 8, True), (0, 8, True), (1, 1, True), (4, 7, True)]
    with pytest.raises(stepscope.Refused, match="checked for the last dimension only"):
        mine(x, (2, 8), torch.ones(2, 8))


def test_an_own_loss_is_checked_with_rows_that_do_not_count():
    def counts_all(logits, targets):
        return -logits.float().log_softmax(1).gather(1, targets.clamp_min(0)[:, None]).mean()

    with pytest.raises(stepscope.CheckFailed):
        stepscope.op("loss", device="cpu")(counts_all)
    plain = stepscope.op("loss", device="cpu")(lambda logits, targets: torch.nn.functional.cross_entropy(logits.float(), targets))
    logits, targets = torch.randn(3, 5), torch.tensor([1, -1, 2])
    with pytest.raises(stepscope.Refused, match="ignore_index is -1, and this kernel takes none"):
        plain(logits, targets, ignore_index=-1)
    for legacy in (dict(size_average=False), dict(reduce=False)):
        with pytest.raises(stepscope.Refused, match="the plain mean"):
            plain(logits, torch.arange(3), **legacy)
    with pytest.raises(stepscope.Refused, match="target is float32; own kernels are checked for class indices"):
        plain(logits, torch.zeros(3))


def test_a_kernel_that_autograd_cannot_follow_runs_once_in_a_training_step():
    calls, x = [], torch.randn(4, 8, requires_grad=True)
    opaque = stepscope.op("gelu", device="cpu", check=False)(lambda x: (calls.append(1), KERNELS["gelu_forward"](x.detach()))[1])
    out = opaque(x)
    gradient, = torch.autograd.grad(out.sum(), x)
    assert len(calls) == 1
    torch.testing.assert_close(gradient, torch.autograd.grad(torch.nn.functional.gelu(x, approximate="tanh").sum(), x)[0])


def test_a_kernel_that_forgets_causality_is_refused():
    with pytest.raises(stepscope.CheckFailed):
        stepscope.op("attention", device="cpu")(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v))


def test_an_unknown_kind_and_a_wrong_shape_are_refused():
    with pytest.raises(stepscope.Refused, match="no op for own kernels"):
        stepscope.op("matmul")
    with pytest.raises(stepscope.CheckFailed, match="shape"):
        stepscope.op("gelu", device="cpu", backward=lambda d, x: d)(lambda x: torch.zeros(3))


def test_cuda_source_that_does_not_compile_is_refused_with_the_log():
    from stepscope._nvrtc import compile_source
    try:
        code = compile_source('extern "C" __global__ void fine(float* x) { x[threadIdx.x] = 1; }', architecture="sm_90")
    except stepscope.MachineError as e:
        pytest.skip(str(e))
    assert code[:4] == b"\x7fELF"
    with pytest.raises(stepscope.Refused, match="undefined"):
        compile_source('extern "C" __global__ void wrong(float* x) { x[0] = nothing; }', architecture="sm_90")


@pytest.mark.parametrize("model, batch, sentence", [
    (3, (), "the model is int, expected a torch.nn.Module"),
    (None, None, "the batch is NoneType, expected what the model is called with"),
    (None, "text", "the batch is str"),
    (None, (torch.zeros(0, 16, dtype=torch.int64),) * 2, "layernorm: the batch gives it a tensor without elements, of which nothing can be"),
])
def test_what_cannot_be_checked_is_refused_with_a_sentence(tiny, model, batch, sentence):
    stepscope.replace(tiny, layernorm=True)
    with pytest.raises(stepscope.Refused, match=sentence):
        stepscope.check(tiny if model is None else model, batch)


def test_a_mapping_is_the_models_keywords():
    import collections

    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(8)

        def forward(self, *, rows):
            return self.norm(rows)

    model = Named()
    stepscope.replace(model, layernorm=True)
    # As transformers' tokenizers answer: no dict.
    assert stepscope.check(model, collections.UserDict(rows=torch.randn(4, 8))).ok
