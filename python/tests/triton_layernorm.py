"""A user's layernorm in Triton: one program per row, the row in registers."""
import torch
import triton
import triton.language as tl


@triton.jit
def _rows(out, x, weight, bias, C, eps, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < C
    v = tl.load(x + row * C + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / C
    centred = tl.where(inside, v - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / C
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    y = centred / tl.sqrt_rn(variance + eps) * w + b
    tl.store(out + row * C + column, y.to(out.dtype.element_ty), mask=inside)


def layernorm(x, weight, bias, eps=1e-5):
    flat = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(flat)
    _rows[(flat.shape[0],)](out, flat, weight, bias, flat.shape[1], eps, BLOCK=triton.next_power_of_2(flat.shape[1]))
    return out.view(x.shape)
