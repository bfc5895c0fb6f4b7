"""The ops on the CPU, in plain formulas, so that everything around the kernels runs without a device. `wrong` breaks one of them."""
import contextlib
import math

import torch


def layernorm_forward(x, weight, bias, variant):
    wide = x.double()
    mean = wide.mean(1)
    rstd = (wide.var(1, unbiased=False) + 1e-5).rsqrt()
    out = (wide - mean[:, None]) * rstd[:, None] * weight.double() + bias.double()
    kept = x.to(weight.dtype) if x.dtype != weight.dtype else x.new_empty(0, dtype=weight.dtype)
    return out.to(weight.dtype), mean.float(), rstd.float(), kept


def layernorm_backward(dout, inp, mean, rstd, weight, wide, variant):
    xhat = (inp.double() - mean.double()[:, None]) * rstd.double()[:, None]
    dn = dout.double() * weight.double()
    dinp = rstd.double()[:, None] * (dn - dn.mean(1, keepdim=True) - xhat * (dn * xhat).mean(1, keepdim=True))
    return dinp.to(torch.float32 if wide else inp.dtype), (dout.double() * xhat).sum(0).float(), dout.double().sum(0).float()


def _tanh(x):
    return torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def gelu_forward(x):
    wide = x.double()
    return (0.5 * wide * (1 + _tanh(wide))).to(x.dtype)


def gelu_backward(dout, x):
    wide = x.double()
    t = _tanh(wide)
    slope = 0.5 * (1 + t) + 0.5 * wide * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * wide**2)
    return (dout.double() * slope).to(x.dtype)


def _scores(qkv, heads):
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (t.double().view(B, T, heads, C // heads).transpose(1, 2) for t in qkv.split(C, dim=2))
    s = q @ k.transpose(2, 3) / math.sqrt(C // heads)
    return q, k, v, s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)


def _packed(t):
    B, heads, T, size = t.shape
    return t.transpose(1, 2).reshape(B, T, heads * size)


def attention_forward(qkv, heads, variant):
    q, k, v, s = _scores(qkv, heads)
    return _packed(s.softmax(3) @ v).to(qkv.dtype), s.logsumexp(3).float()


def attention_backward(dout, qkv, out, lse, heads, variant):
    q, k, v, s = _scores(qkv, heads)
    B, T, C = dout.shape
    d, o = (t.double().view(B, T, heads, C // heads).transpose(1, 2) for t in (dout, out))
    p = s.softmax(3)
    ds = p * (d @ v.transpose(2, 3) - (d * o).sum(3, keepdim=True)) / math.sqrt(C // heads)
    return torch.cat([_packed(ds @ k), _packed(ds.transpose(2, 3) @ q), _packed(p.transpose(2, 3) @ d)], 2).to(qkv.dtype)


def cross_entropy_forward(logits, targets, columns, ignored, variant):
    return torch.nn.functional.cross_entropy(logits[:, :columns].double(), targets, ignore_index=ignored).float()


def cross_entropy_backward(logits, targets, upstream, columns, ignored, variant):
    counted = targets != ignored
    p = logits[:, :columns].double().softmax(1)
    p[torch.arange(len(targets)), targets.clamp_min(0)] -= 1
    p[~counted] = 0
    logits.zero_()
    logits[:, :columns] = (p * upstream.double() / counted.sum().clamp_min(1)).to(logits.dtype)  # ignored rows are 0, also where all are


def cross_entropy_kept_sum_forward(logits, targets, ignored):
    largest = logits.double().amax(1)
    kept = torch.stack([largest, (logits.double() - largest[:, None]).exp().sum(1).log()], 1).float()
    return cross_entropy_forward(logits, targets, logits.shape[1], ignored, ""), kept


def cross_entropy_kept_sum_backward(logits, kept, targets, upstream, ignored):
    pack = 16 // logits.element_size()
    padded = logits.new_zeros((logits.shape[0], (logits.shape[1] + pack - 1) // pack * pack))
    padded[:, :logits.shape[1]] = logits
    cross_entropy_backward(padded, targets, upstream, logits.shape[1], ignored, "")
    return padded


def sdpa_forward(q, k, v, variant):
    from stepscope._ops import packed
    return _installed["attention_forward"](packed(q, k, v), q.shape[1], variant)


def sdpa_backward(dout, q, k, v, out, lse, variant):
    from stepscope._ops import packed
    return _installed["attention_backward"](dout, packed(q, k, v), out, lse, q.shape[1], variant)


KERNELS = {f.__name__: f for f in (layernorm_forward, layernorm_backward, gelu_forward, gelu_backward, attention_forward, attention_backward,
                                   sdpa_forward, sdpa_backward, cross_entropy_forward, cross_entropy_backward,
                                   cross_entropy_kept_sum_forward, cross_entropy_kept_sum_backward)}
_installed = dict(KERNELS)


def install():
    """Registers the kernels for the CPU; each looks up what is installed now. cuDNN counts as present."""
    from stepscope import functional
    from stepscope._ops import LIBRARY
    global real_has_cudnn
    real_has_cudnn, functional.has_cudnn = functional.has_cudnn, lambda: True
    for name in KERNELS:
        LIBRARY.impl(name, (lambda name: lambda *a: _installed[name](*a))(name), "CPU")


@contextlib.contextmanager
def wrong(name, kernel):
    _installed[name] = kernel
    try:
        yield
    finally:
        _installed[name] = KERNELS[name]
