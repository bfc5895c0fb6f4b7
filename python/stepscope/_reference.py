"""What PyTorch computes for a recorded call: in float64 as the truth, and in the call's own types as the yardstick."""
import torch
import torch.nn.functional as F

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
        B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in qkv.split(C, dim=2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)

    return attention


def storage_of(call):
    """The type in which the op keeps what it passes on: the yardstick computes in it."""
    if "storage" in call.settings:
        return call.settings["storage"]
    return call.tensors[0].dtype


def converted(call, dtype):
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in call.tensors)


def forward_and_gradients(function, tensors, upstream):
    """[out, gradient of each floating tensor]; `upstream` is the gradient of out, in any type. An out of another shape comes alone."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    with torch.enable_grad():
        out = function(*leaves)
    if out.shape != upstream.shape:
        return [out.detach()]
    wanted = [t for t in leaves if t.requires_grad]
    gradients = torch.autograd.grad(out, wanted, upstream.to(out.dtype))
    return [out.detach(), *gradients]


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
