"""The real kernels: check() of a whole model in every type and variant, CUDA graphs, torch.compile, own kernels. Needs a device."""
import pytest
import torch

import stepscope
from stepscope.models import GPT, GPTConfig

pytestmark = pytest.mark.gpu


@pytest.fixture
def model(cuda):
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=1021, block_size=128, n_layer=2, n_head=4, n_embd=256)).to(cuda)


@pytest.fixture
def tokens(cuda):
    torch.manual_seed(1)
    return torch.randint(1021, (4, 128), device=cuda), torch.randint(1021, (4, 128), device=cuda)


VARIANTS = [{}, dict(layernorm="block_per_row+separate_columns", loss="two_pass", attention="unfused"),
            dict(attention="cudnn", layernorm=True, loss=True, gelu=True), dict(loss="one_read")]


@pytest.mark.parametrize("variants", VARIANTS, ids=["defaults", "others", "cudnn", "one_read"])
@pytest.mark.parametrize("way", ["float32", "autocast", "bfloat16"])
def test_every_op_is_within_twice_pytorchs_own_error(model, tokens, way, variants):
    if "cudnn" in variants.values() and way == "float32":
        pytest.skip("cuDNN's attention takes bfloat16 only")
    torch.backends.cuda.matmul.allow_tf32 = False
    if way == "bfloat16":
        model = model.bfloat16()
    stepscope.replace(model, **variants)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=way == "autocast"):
        report = stepscope.check(model, tokens)
    assert report.ok and len(report.rows) >= (4 if variants == dict(loss="one_read") else 20)


def test_a_variant_that_refuses_raises_the_gates_sentence(cuda):
    wide = torch.randn(4, 4096, device=cuda, dtype=torch.bfloat16)
    weight = torch.ones(4096, device=cuda, dtype=torch.bfloat16)
    with pytest.raises(stepscope.Refused, match="use layernorm_forward=block_per_row"):
        stepscope.functional.layer_norm(wide, (4096,), weight, weight)
    qkv = torch.randn(1, 8, 3 * 512, device=cuda)
    with pytest.raises(stepscope.Refused, match="heads of up to 128"):
        stepscope.functional.attention(qkv, 2)
    with pytest.raises(stepscope.Refused, match="cudnn"):
        stepscope.functional.attention(torch.randn(1, 8, 96, device=cuda), 4, attention_forward="cudnn", attention_backward="cudnn")


def test_a_captured_step_replays_the_bits_of_the_eager_one(model, tokens):
    stepscope.replace(model, layernorm=True, gelu=True, loss=True, attention="cudnn_deterministic")
    inputs = [t.clone() for t in tokens]

    def step():
        for p in model.parameters():
            p.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = model(*inputs)[1]
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    captured = [p.grad for p in model.parameters()]
    for seed in range(3):
        torch.manual_seed(seed)
        for t in inputs:
            t.copy_(torch.randint(1021, (4, 128), device=t.device))
        graph.replay()
        replayed, gradients = loss.item(), [g.clone() for g in captured]
        # wte's gradient is summed by atomics in PyTorch's embedding backward, so it is compared by value.
        eager = step()
        assert eager.item() == replayed
        for (name, p), g in zip(model.named_parameters(), gradients):
            if "wte" in name or "wpe" in name:
                torch.testing.assert_close(p.grad, g)
            else:
                assert torch.equal(p.grad, g), name
        for p, c in zip(model.parameters(), captured):
            p.grad = c


@pytest.mark.parametrize("compiled", [False, True], ids=["all", "what is worth it"])
def test_a_compiled_step_has_the_eager_gradients(model, tokens, compiled):
    report = stepscope.replace(model, compiled=compiled)
    assert len({s.op for s in report.replaced}) > 3 or compiled
    model(*tokens)[1].backward()
    eager = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    torch._dynamo.reset()
    torch.compile(model, fullgraph=True)(*tokens)[1].backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, eager[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("between", [1, 7, 47])
def test_kept_sum_of_strided_rows_has_the_bits_of_contiguous_ones(cuda, dtype, between):
    torch.manual_seed(5)
    padded = torch.full((64, 50257 + between), float("nan"), device=cuda, dtype=dtype)
    padded[:, :50257] = torch.randn(64, 50257, device=cuda)
    targets = torch.randint(50257, (64,), device=cuda)
    targets[3] = -100
    answers = []
    for logits in (padded[:, :50257], padded[:, :50257].contiguous()):
        logits = logits.detach().requires_grad_()
        loss = stepscope.functional.cross_entropy(logits, targets, classifier="kept_sum")
        answers.append((loss.item(), torch.autograd.grad(loss * 3, logits)[0]))
    assert answers[0][0] == answers[1][0] and torch.equal(answers[0][1], answers[1][1])
    assert padded[:, 50257:].isnan().all() and answers[0][1].isfinite().all()


def test_a_compiled_step_hands_kept_sum_its_padded_logits_without_a_copy(model, tokens, monkeypatch):
    from torch._inductor import config
    stepscope.replace(model, loss="kept_sum")
    called = []

    def call(name, *arguments, call=stepscope._library.call):
        if "kept_sum" in name:
            called.append((name, arguments[7 if name.endswith("forward") else 8]))  # the pitch
        call(name, *arguments)

    monkeypatch.setattr(stepscope._library, "call", call)
    torch._dynamo.reset()
    with config.patch(shape_padding=True, force_shape_pad=True, force_disable_caches=True):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.compile(model, fullgraph=True)(*tokens)[1]
        loss.backward()
    assert called == [("cross_entropy_kept_sum_forward", 1024), ("cross_entropy_kept_sum_backward", 1024)], "1021 columns in padded rows"


def test_ops_follow_the_current_stream_and_device(cuda):
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 22, device=cuda)
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.fill_(1.0)
        y = stepscope.functional.gelu(x)
    side.synchronize()
    assert y[0].item() == pytest.approx(0.841192, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adamw_steps_as_pytorch_does(cuda, dtype):
    def net():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(37, 51), torch.nn.Linear(51, 13)).to(cuda)

    own, ours = net(), net().to(dtype)
    # PyTorch in float32 is the yardstick of the masters, fed the gradients of ours.
    a = torch.optim.AdamW(own.parameters(), lr=1e-3, weight_decay=0.1)
    b = stepscope.AdamW(ours.parameters(), lr=1e-3, weight_decay=0.1)
    with torch.no_grad():
        for p, q in zip(own.parameters(), ours.parameters()):
            p.copy_(q)
    for i in range(10):
        for p, q in zip(own.parameters(), ours.parameters()):
            q.grad = torch.randn_like(q)
            p.grad = q.grad.float()
        a.step(), b.step()
    for p, master in zip(own.parameters(), b._stepscope_flat.views["values"]):
        torch.testing.assert_close(master, p.detach(), rtol=1e-5, atol=1e-6)


def triton_layernorm(eps):
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    from triton_layernorm import layernorm
    return lambda x, weight, bias: layernorm(x, weight, bias, eps)


def test_a_triton_layernorm_is_taken_and_a_wrong_one_refused(cuda):
    right = stepscope.op("layernorm")(triton_layernorm(1e-5))
    assert right.report.ok
    with pytest.raises(stepscope.CheckFailed) as failed:
        stepscope.op("layernorm")(triton_layernorm(0.0))
    assert any(r.site == "hostile rows" and not r.ok for r in failed.value.rows)


CUDA_GELU = r"""
extern "C" __global__ void gelu(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  out[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + CUBIC * v * v * v)));
}
"""


def cuda_gelu(cubic):
    kernel = stepscope.cuda_kernel(CUDA_GELU, "gelu", options=[f"-DCUBIC={cubic}f"])

    def gelu(x):
        out = torch.empty_like(x)
        kernel((-(-x.numel() // 256),), (256,), (out, x, x.numel()))
        return out

    return gelu


def test_cuda_source_is_compiled_checked_and_refused_when_wrong(cuda):
    assert stepscope.op("gelu", dtypes=[torch.float32])(cuda_gelu(0.044715)).report.ok
    with pytest.raises(stepscope.CheckFailed):
        stepscope.op("gelu", dtypes=[torch.float32])(cuda_gelu(0.0447))
