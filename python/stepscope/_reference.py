"""What PyTorch computes for a recorded call: in float64 as the truth, and in the call's own types as the yardstick."""
import math

import torch
import torch.nn.functional as F

from .functional import heads_of

ROUNDING = 2.0**-24  # of float32, relative

NAMES = {"layernorm": ("x", "weight", "bias"), "gelu": ("x",), "attention": ("qkv",), "loss": ("logits", "targets")}


def function_of(op, settings):
    """tensors -> out, in whatever type the tensors have."""
    if op == "layernorm":
        return lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-5)
    if op == "gelu":
        return lambda x: F.gelu(x, approximate="tanh")
    if op == "loss":
        # Logits narrower than float are widened, as every model does in front of its loss.
        return lambda logits, targets: F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), targets,
                                                       ignore_index=settings["ignored"])
    heads = settings["heads"]

    def attention(qkv):
        out = F.scaled_dot_product_attention(*heads_of(qkv, heads), is_causal=True)
        return out.transpose(1, 2).reshape(*qkv.shape[:2], qkv.shape[2] // 3)

    return attention


def storage_of(call):
    """The type in which the op keeps what it passes on: the yardstick computes in it."""
    if "storage" in call.settings:
        return call.settings["storage"]
    return call.tensors[0].dtype


def converted(call, dtype):
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in call.tensors)


def forward_and_gradients(function, tensors, upstream):
    """[out, gradient of each floating tensor]; `upstream` is the gradient of out, in any type. An out of another shape comes alone, and a
    gradient is None where out does not depend on the tensor as far as autograd knows."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    with torch.enable_grad():
        out = function(*leaves)
    if out.shape != upstream.shape:
        return [out.detach()]
    wanted = [t for t in leaves if t.requires_grad]
    if not out.requires_grad:
        return [out.detach(), *[None] * len(wanted)]
    gradients = torch.autograd.grad(out, wanted, upstream.to(out.dtype), allow_unused=True)
    return [out.detach(), *gradients]


def as_rows(t):
    """(rows, columns), also of a tensor without rows or without numbers."""
    t = torch.atleast_1d(t)
    return t.reshape(math.prod(t.shape[:-1]), t.shape[-1])


def not_reached(out, tensors):
    """Those of the tensors to which autograd has no way from out."""
    nodes = {t: t.grad_fn if t.grad_fn is not None else t.expand_as(t).grad_fn.next_functions[0][0] for t in tensors}
    waiting, seen = [out.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if node not in nodes.values():  # what is behind a tensor is the model's
                waiting += [n for n, _ in node.next_functions]
    return [t for t, node in nodes.items() if node not in seen]


def _signs(seed):
    """t -> +1 or -1 for each number of t."""
    generator = torch.Generator().manual_seed(seed)
    return lambda t: (1 - 2 * torch.randint(2, t.shape, generator=generator)).to(t.device, torch.float64)


def _attention_rounded(call, upstream, signs):
    """Attention in float64 whose intermediate sums are off by as much as one rounding of each of their terms can move them: scores, out,
    the logarithm of a sum, and the two sums whose difference is a score's gradient (equal but for that, where one score wins a row)."""
    heads, qkv = call.settings["heads"], call.tensors[0].double()
    q, k, v = heads_of(qkv, heads)
    B, T, C = upstream.shape
    scale = 1 / math.sqrt(C // heads)
    future = torch.ones(T, T, dtype=torch.bool, device=qkv.device).triu(1)

    def product(a, b):
        exact = a @ b
        return exact + ROUNDING * signs(exact) * (a.abs() @ b.abs())

    def scores():
        return (product(q, k.transpose(2, 3)) * scale).masked_fill(future, -math.inf)

    s = scores()
    out, lse = product(s.softmax(3), v), s.logsumexp(3, keepdim=True)
    lse = lse * (1 + ROUNDING * signs(lse))
    p, d = (scores() - lse).exp(), upstream.double().view(B, T, heads, C // heads).transpose(1, 2)
    ds = p * (product(d, v.transpose(2, 3)) - product(d.unsqueeze(3), out.unsqueeze(4)).squeeze(4)) * scale
    parts = (ds @ k, ds.transpose(2, 3) @ q, p.transpose(2, 3) @ d)
    return [t.transpose(1, 2).reshape(B, T, C) for t in (out,)] + [torch.cat([t.transpose(1, 2).reshape(B, T, C) for t in parts], 2)]


def forward_and_gradients_rounded(call, upstream, seed):
    """[out, gradients] in float64 with roundings of float32 put in: into attention's sums, into the other ops' inputs."""
    signs = _signs(seed)
    if call.op == "attention":
        return _attention_rounded(call, upstream, signs)
    tensors = [t.double() * (1 + ROUNDING * signs(t)) if t.is_floating_point() else t for t in call.tensors]
    return forward_and_gradients(function_of(call.op, call.settings), tensors, upstream)


def upstream_for(call, seed):
    """A gradient that no op can guess: normal numbers, 0.75 for a loss, whose gradient must be scaled by it."""
    if call.op == "loss":
        return torch.tensor(0.75, dtype=torch.float64, device=call.tensors[0].device)
    shape = call.tensors[0].shape if call.op != "attention" else (*call.tensors[0].shape[:2], call.tensors[0].shape[2] // 3)
    generator = torch.Generator().manual_seed(seed)
    # Rounded to what every storage holds, so that all three arms get the same numbers.
    return torch.randn(shape, generator=generator).bfloat16().double().to(call.tensors[0].device)


def tensor_names(op):
    return ["out"] + ["d" + n for n in NAMES[op] if n != "targets"]
