"""The replaced ops as functions, under the names and arguments of torch.nn.functional where those fit; differentiable, for eager and
compiled programs. What a kernel cannot take is refused with a sentence (Refused), never computed in another way.

The kernels have no second derivative: a gradient of a gradient (create_graph=True) is refused, where what a forward keeps for its backward
would count as constant.

Types: weights and activations are float32 or bfloat16. Under torch.autocast the activations' type is autocast's, and layer_norm takes
the residual stream in float32 and gives bfloat16, where PyTorch gives float32 that the next product rounds to the same."""
import functools
import math
import threading

import torch
import torch.nn.functional as F

from . import _library, _ops
from ._errors import Refused, StepscopeError

_F32, _BF16 = torch.float32, torch.bfloat16
_op = torch.ops.stepscope
_recording = threading.local()


class recorded:
    """with recorded() as calls: every call of an op in this thread appends a Call to `calls`."""

    def __enter__(self):
        self.before = getattr(_recording, "calls", None)
        _recording.calls = []
        return _recording.calls

    def __exit__(self, *what):
        _recording.calls = self.before


class Call:
    """One call of an op: run(*tensors) is what ran, `settings` what PyTorch needs to do the same. `site` is set by who records."""

    def __init__(self, op, tensors, settings, run):
        self.op, self.tensors, self.settings, self.run, self.site = op, tensors, settings, run, ""


def is_recording():
    """Whether recorded() listens. Not while a program is compiled, which calls nothing."""
    return not torch.compiler.is_compiling() and getattr(_recording, "calls", None) is not None


def record(op, tensors, settings, run):
    """Tells recorded() of a call."""
    if is_recording():
        calls = _recording.calls
        call = Call(op, tuple(t.detach().clone() for t in tensors), settings, run)
        call.site = getattr(_recording, "site", "")
        calls.append(call)


def set_site(name):
    """The name that calls recorded from now on in this thread carry."""
    _recording.site = name


def _autocast_type(device_type, op):
    """The type that autocast asks for; None outside autocast."""
    if not torch.is_autocast_enabled(device_type):
        return None
    wanted = torch.get_autocast_dtype(device_type)
    if wanted != _BF16:
        raise Refused(f"{op}: autocast asks for {str(wanted).removeprefix('torch.')}; the kernels store float32 and bfloat16")
    return wanted


def _refused(op, why):
    """What only the arguments of a call say. replace() listed the call as replaced, so the way out of it is named."""
    return Refused(f"{op}: {why}. If replace() brought this call here, {op}=False leaves it to PyTorch")


def refuse_transforms(op):
    """torch.func and torch.vmap want rules that the ops do not have, and PyTorch would ask the reader to write them."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise Refused(f"{op}: it was called inside torch.func or torch.vmap, which have no rules for the kernels. Compute that inside "
                      "`with report.off():`")


class _NoSecondDerivative(torch.autograd.Function):
    """The same gradients, whose own gradient nobody may ask for. The first `count` tensors are what they were
    computed from, so that autograd comes here on its way to those."""

    @staticmethod
    def forward(ctx, count, *tensors):
        return tuple(t.view_as(t) for t in tensors[count:])

    @staticmethod
    def backward(ctx, *upstream):
        raise Refused("a gradient of a gradient was asked for (create_graph=True); the kernels have no second derivative. Compute it inside "
                      "`with report.off():`")


class _Unpacked:
    """A context whose saved tensors were read: torch.utils.checkpoint hands them out once only."""

    def __init__(self, ctx, saved_tensors):
        self._ctx, self.saved_tensors = ctx, saved_tensors

    def __getattr__(self, name):
        return getattr(self._ctx, name)


def first_derivative(backward):
    """torch.autograd.function.once_differentiable takes what was saved for constant where the upstream gradient is one, without a word."""

    @functools.wraps(backward)
    def once(ctx, *upstream):
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return backward(ctx, *upstream)
        saved = ctx.saved_tensors
        sources = [t for t in (*saved, *upstream) if t.requires_grad]
        with torch.no_grad():
            found = backward(_Unpacked(ctx, saved), *upstream)
        found = found if isinstance(found, tuple) else (found,)
        there = iter(_NoSecondDerivative.apply(len(sources), *sources, *(g for g in found if g is not None)))
        return tuple(None if g is None else next(there) for g in found)

    return once


# ---- layernorm -------------------------------------------------------------------------------------------------------


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, storage, forward, backward):
        w, b = weight.to(storage), bias.to(storage)
        out, mean, rstd, kept = _op.layernorm_forward(x, w, b, forward)
        ctx.wide, ctx.backward_variant, ctx.parameter_type = x.dtype != storage, backward, weight.dtype
        ctx.save_for_backward(kept if ctx.wide else x, mean, rstd, w)
        return out

    @staticmethod
    @first_derivative
    def backward(ctx, dout):
        inp, mean, rstd, weight = ctx.saved_tensors
        dout = dout.to(weight.dtype).contiguous()
        dinp, dweight, dbias = _op.layernorm_backward(dout, inp, mean, rstd, weight, ctx.wide, ctx.backward_variant)
        return dinp, dweight.to(ctx.parameter_type), dbias.to(ctx.parameter_type), None, None, None


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, *, layernorm_forward="warp_per_row", layernorm_backward="fused_rows"):
    """F.layer_norm over the last dimension with weight and bias; bias may be None."""
    refuse_transforms("layernorm")
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if len(shape) != 1 or input.shape[-1:] != shape:
        raise _refused("layernorm", f"normalized_shape {shape} of an input {tuple(input.shape)}; the kernels normalize the last dimension only")
    if weight is None:
        raise _refused("layernorm", "it has no weight (elementwise_affine=False); the kernels need one")
    if eps != 1e-5:
        raise _refused("layernorm", f"eps is {eps}, the kernels have 1e-5")
    storage = _autocast_type(input.device.type, "layernorm") or weight.dtype
    if not (input.dtype == storage or (input.dtype == _F32 and storage == _BF16)):
        # Of a bfloat16 stream in front of float32 weights there is no kernel; other types are no storage at all.
        _ops.storage_of(input, "layernorm", "x"), _ops.storage_of(weight, "layernorm", "weight")
        raise _refused("layernorm", "x is bfloat16 with float32 weights, which no kernel takes; cast x, or run it under torch.autocast")
    if bias is None:
        bias = torch.zeros_like(weight)

    def run(x, weight, bias):
        flat = x.reshape(-1, shape[0]).contiguous()
        return _LayerNorm.apply(flat, weight, bias, storage, layernorm_forward, layernorm_backward).view(x.shape)

    record("layernorm", (input, weight, bias), {"storage": storage}, run)
    return run(input, weight, bias)


# ---- gelu ------------------------------------------------------------------------------------------------------------


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _op.gelu_forward(x)

    @staticmethod
    @first_derivative
    def backward(ctx, dout):
        (x,) = ctx.saved_tensors
        return _op.gelu_backward(dout.to(x.dtype).contiguous(), x)


def gelu(input, approximate="tanh", *, gelu_forward="kernel", gelu_backward="kernel"):
    """F.gelu(x, approximate='tanh')."""
    refuse_transforms("gelu")
    if approximate != "tanh":
        raise Refused(f"gelu: approximate={approximate!r} is another function; the kernel computes the tanh form")
    _ops.storage_of(input, "gelu", "x")
    x = input.contiguous()
    record("gelu", (x,), {}, _Gelu.apply)
    return _Gelu.apply(x)


# ---- attention -------------------------------------------------------------------------------------------------------


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv, heads, forward, backward):
        out, lse = _op.attention_forward(qkv, heads, forward)
        ctx.save_for_backward(qkv, out, lse)
        ctx.heads, ctx.backward_variant = heads, backward
        return out

    @staticmethod
    @first_derivative
    def backward(ctx, dout):
        qkv, out, lse = ctx.saved_tensors
        dout = dout.to(qkv.dtype).contiguous()
        return _op.attention_backward(dout, qkv, out, lse, ctx.heads, ctx.backward_variant), None, None, None


class _Sdpa(torch.autograd.Function):
    """The same of three views. Their gradients are views of one packed tensor."""

    @staticmethod
    def forward(ctx, q, k, v, forward, backward):
        out, lse = _op.sdpa_forward(q, k, v, forward)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.backward_variant = backward
        return out

    @staticmethod
    @first_derivative
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        B, heads, T, size = q.shape
        dqkv = _op.sdpa_backward(dout.to(q.dtype).contiguous(), q, k, v, out, lse, ctx.backward_variant)
        return *heads_of(dqkv, heads), None, None


def heads_of(qkv, heads):
    """Query, key and value of (batch, tokens, 3 * channels) as views (batch, heads, tokens, head size)."""
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    return tuple(t.view(B, T, heads, C // heads).transpose(1, 2) for t in qkv.split(C, dim=2))


def has_cudnn():
    """Whether the library has cuDNN's attention on this machine."""
    try:
        _library.bytes_of("attention_forward_scratch", b"cudnn", 1, 1, 64, 64, 1)
        return True
    except StepscopeError:
        return False


# torch.compiler.assume_constant_result says the same, and imports torch._dynamo, which takes a second.
has_cudnn._dynamo_marked_constant = True


def _attention_variants(storage, forward, backward):
    """What runs where no variant was named: cudnn where there is one, which flash does not reach (docs/python.md has the times)."""
    default = "cudnn" if storage == _BF16 and has_cudnn() else "flash"
    return forward or default, backward or default


def attention(qkv, heads, *, attention_forward=None, attention_backward=None):
    """Causal attention of packed projections: qkv (batch, tokens, 3 * channels) -> (batch, tokens, channels). Without a variant: cudnn
    in bfloat16 where the library has it, else flash."""
    refuse_transforms("attention")
    storage = _autocast_type(qkv.device.type, "attention") or qkv.dtype
    _ops.storage_of(qkv, "attention", "qkv")
    _ops.attention_shape(qkv, heads, "attention")
    qkv = qkv.to(storage).contiguous()
    forward, backward = _attention_variants(storage, attention_forward, attention_backward)

    def run(qkv):
        return _Attention.apply(qkv, heads, forward, backward)

    record("attention", (qkv,), {"heads": heads}, run)
    return run(qkv)


def _projection(parts):
    """The tensor (batch, tokens, 3 * channels) that query, key and value are the parts of, for autograd as well: its gradient then needs
    no concatenation of theirs. None where they are not (all of) the views of one tensor that autograd knows, or where somebody waits for a
    gradient at one of them, which would then be none."""
    base, (B, heads, T, size) = parts[0]._base, parts[0].shape
    if any(t.retains_grad or t._backward_hooks for t in parts):
        return None
    if base is None or any(t._base is not base or (t.grad_fn is None and (t.requires_grad or base.requires_grad)) for t in parts):
        return None
    if (base.numel() != 3 * B * heads * T * size or not base.is_contiguous() or parts[0].storage_offset() != base.storage_offset()
            or not _ops.parts_of_one(*parts)):
        return None
    if any(_passes_a_function(t, base) for t in parts):
        return None
    return base.view(B, T, 3 * heads * size)


def _passes_a_function(view, base):
    """Whether a torch.autograd.Function stands between a view and its base: one that scales or turns gradients gives its input back as a view."""
    node = view.grad_fn
    while node is not None and node is not base.grad_fn:
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        node = next((n for n, _ in node.next_functions), None)
    return False


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, *,
                                 attention_forward=None, attention_backward=None):
    """F.scaled_dot_product_attention of (batch, heads, tokens, head size) tensors, causal only. Views of one packed projection are read
    where they are; other tensors are packed first. Variants as for attention()."""
    refuse_transforms("attention")
    B, heads, T, size = query.shape if query.dim() == 4 else (0, 0, 0, 0)
    if query.dim() != 4 or key.shape != query.shape or value.shape != query.shape:
        raise _refused("attention", f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}; the kernels take three "
                       "tensors of one shape (batch, heads, tokens, head size)")
    if attn_mask is not None:
        raise _refused("attention", "a mask was given; the kernels are causal and take none")
    if not is_causal:
        raise _refused("attention", "is_causal is False; the kernels are causal")
    if dropout_p:
        raise _refused("attention", f"dropout of {dropout_p}; the kernels have none")
    if scale is not None and not math.isclose(scale, size**-0.5, rel_tol=1e-6):
        raise _refused("attention", f"scale is {scale}, the kernels have 1/sqrt(head size) = {size**-0.5}")
    for tensor, name in ((query, "query"), (key, "key"), (value, "value")):
        _ops.storage_of(tensor, "attention", name)
    storage = _autocast_type(query.device.type, "attention") or query.dtype
    forward, backward = _attention_variants(storage, attention_forward, attention_backward)
    parts = [t.to(storage) for t in (query, key, value)]

    whole = None if torch.compiler.is_compiling() else _projection(parts)
    if is_recording():
        as_one = whole is not None

        def run(qkv):  # as it runs below, so that a timing has the copies that a step has, and no others
            return _Attention.apply(qkv, heads, forward, backward) if as_one else _Sdpa.apply(*heads_of(qkv, heads), forward, backward)

        record("attention", (_ops.packed(*parts),), {"heads": heads}, run)
    if whole is not None:
        return _Attention.apply(whole, heads, forward, backward).view(B, T, heads, size).transpose(1, 2)
    return _Sdpa.apply(*parts, forward, backward).view(B, T, heads, size).transpose(1, 2)


# ---- cross entropy ---------------------------------------------------------------------------------------------------


class _CrossEntropy(torch.autograd.Function):
    """The forward only reads logits. The backward turns them into their gradient in place: in the padded copy that the forward made, or
    in a copy that it makes itself, so that the caller's logits stay what they were."""

    @staticmethod
    def forward(ctx, logits, targets, ignored, variant):
        rows, columns = logits.shape
        pack = 16 // logits.element_size()
        ctx.padded = columns % pack != 0 or not logits.is_contiguous()
        if ctx.padded:
            pitch = (columns + pack - 1) // pack * pack
            kept = logits.new_empty((rows, pitch))
            kept[:, :columns].copy_(logits)
        else:
            kept = logits
        ctx.save_for_backward(kept, targets)
        ctx.columns, ctx.ignored, ctx.variant = columns, ignored, variant
        return _op.cross_entropy_forward(kept, targets, columns, ignored, variant)

    @staticmethod
    @first_derivative
    def backward(ctx, upstream):
        kept, targets = ctx.saved_tensors
        gradient = kept if ctx.padded else kept.clone()
        _op.cross_entropy_backward(gradient, targets, upstream.to(_F32).contiguous(), ctx.columns, ctx.ignored, ctx.variant)
        if ctx.padded and not torch.compiler.is_compiling():
            # A second backward through this graph would read gradients as logits; autograd now refuses it.
            torch.autograd.graph.increment_version(kept)
        return gradient[:, :ctx.columns], None, None, None


class _CrossEntropyKeptSum(torch.autograd.Function):
    """The logits are read where they are and stay as they are; the gradient is padded, and a view of it is given back."""

    @staticmethod
    def forward(ctx, logits, targets, ignored):
        loss, kept = _op.cross_entropy_kept_sum_forward(logits, targets, ignored)
        ctx.save_for_backward(logits, kept, targets)
        ctx.ignored = ignored
        return loss

    @staticmethod
    @first_derivative
    def backward(ctx, upstream):
        logits, kept, targets = ctx.saved_tensors
        gradient = _op.cross_entropy_kept_sum_backward(logits, kept, targets, upstream.to(_F32).contiguous(), ctx.ignored)
        return gradient[:, :logits.shape[1]], None, None


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0, *,
                  classifier="kept_sum"):
    """F.cross_entropy of (rows, classes) logits and class indices, as a mean. A target outside the classes makes the loss NaN."""
    refuse_transforms("loss")
    for name, given in (("weight", weight), ("size_average", size_average), ("reduce", reduce)):
        if given is not None:
            raise _refused("loss", f"{name} was given; the kernels compute the plain mean")
    if reduction != "mean" or label_smoothing:
        raise _refused("loss", f"reduction={reduction!r}, label_smoothing={label_smoothing}; the kernels compute the plain mean")
    if input.dim() != 2 or target.dim() != 1 or target.shape[0] != input.shape[0]:
        raise _refused("loss", f"input {tuple(input.shape)} with target {tuple(target.shape)}; expected (rows, classes) and (rows,)")
    if target.is_floating_point() or target.dtype == torch.bool:
        raise _refused("loss", f"target is {str(target.dtype).removeprefix('torch.')}; the kernels take class indices")
    _ops.storage_of(input, "loss", "input")
    target = target.to(torch.int64).contiguous()

    def run(input, target):
        if classifier == "kept_sum":
            return _CrossEntropyKeptSum.apply(input if _ops.row_pitch(input) is not None else input.contiguous(), target, ignore_index)
        return _CrossEntropy.apply(input, target, ignore_index, classifier)

    record("loss", (input, target), {"ignored": ignore_index}, run)
    return run(input, target)
