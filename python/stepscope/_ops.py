"""The ops as PyTorch knows them: torch.ops.stepscope.*, with shape functions for torch.compile and CUDA kernels behind ctypes.

Registered with Library.define and impl, and differentiated by autograd.Function around them (functional.py): custom_op and
register_autograd do the same at several times the host cost per call. Schemas never alias; the two ops that write say so."""
import torch

from . import _library
from ._errors import Refused

F32, BF16 = torch.float32, torch.bfloat16
_CODE = {F32: 0, BF16: 1}

LIBRARY = torch.library.Library("stepscope", "DEF")
_SCHEMAS = {
    "layernorm_forward": "(Tensor x, Tensor weight, Tensor bias, str variant) -> (Tensor, Tensor, Tensor, Tensor)",
    "layernorm_backward": "(Tensor dout, Tensor inp, Tensor mean, Tensor rstd, Tensor weight, bool wide, str variant)"
                          " -> (Tensor, Tensor, Tensor)",
    "gelu_forward": "(Tensor x) -> Tensor",
    "gelu_backward": "(Tensor dout, Tensor x) -> Tensor",
    "attention_forward": "(Tensor qkv, int heads, str variant) -> (Tensor, Tensor)",
    "attention_backward": "(Tensor dout, Tensor qkv, Tensor out, Tensor lse, int heads, str variant) -> Tensor",
    "sdpa_forward": "(Tensor q, Tensor k, Tensor v, str variant) -> (Tensor, Tensor)",
    "sdpa_backward": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, str variant) -> Tensor",
    "cross_entropy_forward": "(Tensor logits, Tensor targets, int columns, int ignored, str variant) -> Tensor",
    "cross_entropy_backward": "(Tensor(a!) logits, Tensor targets, Tensor upstream, int columns, int ignored, str variant) -> ()",
    "cross_entropy_kept_sum_forward": "(Tensor logits, Tensor targets, int ignored) -> (Tensor, Tensor)",
    "cross_entropy_kept_sum_backward": "(Tensor logits, Tensor kept, Tensor targets, Tensor upstream, int ignored) -> Tensor",
    "adamw": "(Tensor(a!) parameters, Tensor(b!) m, Tensor(c!) v, Tensor gradients, Tensor(d!) rounded, Tensor settings, Tensor clip_scale,"
             " int decayed, str variant) -> ()",
}
# Inductor hands an op tensors with the strides that eager PyTorch has, by a copy where its own differ, and it pads GPT-2's 50257 columns.
# These read rows at any distance, so they ask for the order of the strides only. Not flexible_layout: columns side by side would come, too.
_ANY_PITCH = ("cross_entropy_kept_sum_forward", "cross_entropy_kept_sum_backward")


def _tags(name):
    tag = getattr(torch.Tag, "needs_fixed_stride_order", None) if name in _ANY_PITCH else None
    return () if tag is None else (tag,)


for _name, _schema in _SCHEMAS.items():
    LIBRARY.define(_name + _schema, tags=_tags(_name))


# ---- what the kernels can take ---------------------------------------------------------------------------------------


def storage_of(tensor, op, name):
    """0 or 1; refuses types that no kernel stores."""
    if tensor.dtype not in _CODE:
        raise Refused(f"{op}: {name} is {word_of(tensor.dtype)}; the kernels store float32 and bfloat16")
    return _CODE[tensor.dtype]


def word_of(dtype):
    return str(dtype).removeprefix("torch.")


def need(op, device, /, **tensors):
    """name=(tensor, dtype, shape): each on `device`, of that type and shape, contiguous."""
    for name, (tensor, dtype, shape) in tensors.items():
        if tensor.device != device:
            raise Refused(f"{op}: {name} is on {tensor.device}, the other tensors are on {device}")
        if dtype is not None and tensor.dtype != dtype:
            raise Refused(f"{op}: {name} is {word_of(tensor.dtype)}, expected {word_of(dtype)}")
        if shape is not None and tuple(tensor.shape) != tuple(shape):
            raise Refused(f"{op}: {name} has shape {tuple(tensor.shape)}, expected {tuple(shape)}")
        if not tensor.is_contiguous():
            raise Refused(f"{op}: {name} has strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)}; the kernels read "
                          "contiguous tensors only")


class _On:
    """The tensors' device as the current one, where it is another."""

    def __init__(self, device):
        self.guard = None if device.index == torch.cuda.current_device() else torch.cuda.device(device)

    def __enter__(self):
        if self.guard is not None:
            self.guard.__enter__()

    def __exit__(self, *what):
        if self.guard is not None:
            self.guard.__exit__(*what)


def _stream(device):
    return torch._C._cuda_getCurrentRawStream(device.index)


def _scratch(device, size):
    return torch.empty(size, dtype=torch.uint8, device=device)


# ---- layernorm -------------------------------------------------------------------------------------------------------


def _layernorm_types(x, weight, op):
    storage, stream = storage_of(weight, op, "weight"), storage_of(x, op, "x")
    if storage == 0 and stream == 1:
        raise Refused(f"{op}: x is bfloat16 with float32 weights, which no kernel takes; cast x, or run it under torch.autocast")
    if x.dim() != 2:
        raise Refused(f"{op}: x has {x.dim()} dimensions, expected (rows, channels)")
    return storage, stream


def _layernorm_forward(x, weight, bias, variant):
    op = "layernorm"
    storage, stream = _layernorm_types(x, weight, op)
    rows, C = x.shape
    need(op, x.device, x=(x, None, None), weight=(weight, None, (C,)), bias=(bias, weight.dtype, (C,)))
    out, mean, rstd, kept = _layernorm_forward_fake(x, weight, bias, variant)
    with _On(x.device):
        _library.call("layernorm_forward", variant.encode(), storage, stream, out.data_ptr(), mean.data_ptr(), rstd.data_ptr(),
                      kept.data_ptr() if storage != stream else None, x.data_ptr(), weight.data_ptr(), bias.data_ptr(), rows, C,
                      _stream(x.device))
    return out, mean, rstd, kept


def _layernorm_forward_fake(x, weight, bias, variant):
    rows, C = x.shape
    out = x.new_empty((rows, C), dtype=weight.dtype)
    kept = x.new_empty((rows, C) if weight.dtype != x.dtype else (0,), dtype=weight.dtype)
    return out, x.new_empty((rows,), dtype=F32), x.new_empty((rows,), dtype=F32), kept


def _layernorm_backward(dout, inp, mean, rstd, weight, wide, variant):
    op = "layernorm backward"
    storage = storage_of(weight, op, "weight")
    if inp.dim() != 2:
        raise Refused(f"{op}: the input has {inp.dim()} dimensions, expected (rows, channels)")
    rows, C = inp.shape
    need(op, inp.device, dout=(dout, weight.dtype, (rows, C)), inp=(inp, weight.dtype, (rows, C)), mean=(mean, F32, (rows,)),
         rstd=(rstd, F32, (rows,)), weight=(weight, None, (C,)))
    dinp, dweight, dbias = _layernorm_backward_fake(dout, inp, mean, rstd, weight, wide, variant)
    if rows == 0:
        return dinp, dweight.zero_(), dbias.zero_()
    with _On(inp.device):
        size = _library.bytes_of("layernorm_backward_scratch", variant.encode(), storage, rows, C)
        scratch = _scratch(inp.device, size)
        _library.call("layernorm_backward", variant.encode(), storage, 0 if wide else storage, dinp.data_ptr(), dweight.data_ptr(),
                      dbias.data_ptr(), dout.data_ptr(), inp.data_ptr(), mean.data_ptr(), rstd.data_ptr(), weight.data_ptr(), rows, C,
                      scratch.data_ptr(), size, _stream(inp.device))
    return dinp, dweight, dbias


def _layernorm_backward_fake(dout, inp, mean, rstd, weight, wide, variant):
    C = weight.shape[0]
    return inp.new_empty(inp.shape, dtype=F32 if wide else inp.dtype), weight.new_empty((C,), dtype=F32), weight.new_empty((C,), dtype=F32)


# ---- gelu ------------------------------------------------------------------------------------------------------------


def _gelu_forward(x):
    storage = storage_of(x, "gelu", "x")
    need("gelu", x.device, x=(x, None, None))
    out = torch.empty_like(x)
    with _On(x.device):
        _library.call("gelu_forward", storage, out.data_ptr(), x.data_ptr(), x.numel(), _stream(x.device))
    return out


def _gelu_backward(dout, x):
    storage = storage_of(x, "gelu backward", "x")
    need("gelu backward", x.device, x=(x, None, None), dout=(dout, x.dtype, x.shape))
    dinp = torch.empty_like(x)
    with _On(x.device):
        _library.call("gelu_backward", storage, dinp.data_ptr(), dout.data_ptr(), x.data_ptr(), x.numel(), _stream(x.device))
    return dinp


# ---- attention -------------------------------------------------------------------------------------------------------


def attention_shape(qkv, heads, op):
    if qkv.dim() != 3 or qkv.shape[2] % 3 != 0:
        raise Refused(f"{op}: qkv has shape {tuple(qkv.shape)}, expected (batch, tokens, 3 * channels)")
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    if heads < 1 or C % heads != 0:
        raise Refused(f"{op}: {C} channels do not divide into {heads} heads")
    return B, T, C


def _attention_forward(qkv, heads, variant):
    op = "attention"
    storage = storage_of(qkv, op, "qkv")
    B, T, C = attention_shape(qkv, heads, op)
    need(op, qkv.device, qkv=(qkv, None, None))
    out, lse = _attention_forward_fake(qkv, heads, variant)
    with _On(qkv.device):
        size = _library.bytes_of("attention_forward_scratch", variant.encode(), storage, B, T, C, heads)
        scratch = _scratch(qkv.device, size)
        _library.call("attention_forward", variant.encode(), storage, out.data_ptr(), lse.data_ptr(), qkv.data_ptr(), B, T, C, heads,
                      scratch.data_ptr(), size, _stream(qkv.device))
    return out, lse


def _attention_forward_fake(qkv, heads, variant):
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    return qkv.new_empty((B, T, C)), qkv.new_empty((B, heads, T), dtype=F32)


def _attention_backward(dout, qkv, out, lse, heads, variant):
    op = "attention backward"
    storage = storage_of(qkv, op, "qkv")
    B, T, C = attention_shape(qkv, heads, op)
    need(op, qkv.device, dout=(dout, qkv.dtype, (B, T, C)), qkv=(qkv, None, None), out=(out, qkv.dtype, (B, T, C)),
         lse=(lse, F32, (B, heads, T)))
    dqkv = torch.empty_like(qkv)
    with _On(qkv.device):
        size = _library.bytes_of("attention_backward_scratch", variant.encode(), storage, B, T, C, heads)
        scratch = _scratch(qkv.device, size)
        _library.call("attention_backward", variant.encode(), storage, dqkv.data_ptr(), dout.data_ptr(), qkv.data_ptr(), out.data_ptr(),
                      lse.data_ptr(), B, T, C, heads, scratch.data_ptr(), size, _stream(qkv.device))
    return dqkv


def parts_of_one(q, k, v):
    """Whether these (batch, heads, tokens, head size) tensors lie in memory as the parts of one (batch, tokens, 3 * channels) tensor."""
    B, heads, T, size = q.shape
    C, want, at = heads * size, (T * 3 * heads * size, size, 3 * heads * size, 1), q.storage_offset()
    return (all(all(n == 1 or s == w for n, s, w in zip(t.shape, t.stride(), want)) for t in (q, k, v))
            and (k.storage_offset(), v.storage_offset()) == (at + C, at + 2 * C)
            and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr())


def packed(q, k, v):
    """(batch, tokens, 3 * channels) of three such tensors: without a copy where they are parts of one."""
    B, heads, T, size = q.shape
    C = heads * size
    if parts_of_one(q, k, v):
        return q.as_strided((B, T, 3 * C), (T * 3 * C, 3 * C, 1))
    return torch.cat([t.transpose(1, 2).reshape(B, T, C) for t in (q, k, v)], dim=2)


def _sdpa_forward(q, k, v, variant):
    return _attention_forward(packed(q, k, v), q.shape[1], variant)


def _sdpa_forward_fake(q, k, v, variant):
    B, heads, T, size = q.shape
    return q.new_empty((B, T, heads * size)), q.new_empty((B, heads, T), dtype=F32)


def _sdpa_backward(dout, q, k, v, out, lse, variant):
    return _attention_backward(dout, packed(q, k, v), out, lse, q.shape[1], variant)


def _sdpa_backward_fake(dout, q, k, v, out, lse, variant):
    B, heads, T, size = q.shape
    return q.new_empty((B, T, 3 * heads * size))


# ---- cross entropy ---------------------------------------------------------------------------------------------------


def row_pitch(tensor):
    """How many numbers lie between the beginnings of the rows of (rows, columns); None where a row is not contiguous or rows overlap."""
    (rows, columns), (pitch, step) = tensor.shape, tensor.stride()
    if columns > 1 and step != 1:
        return None
    if rows <= 1:
        return columns  # the stride of a dimension of 1 says nothing
    return pitch if pitch >= columns else None


def _cross_entropy_checks(logits, targets, columns, op):
    storage = storage_of(logits, op, "logits")
    if logits.dim() != 2 or not 1 <= columns <= logits.shape[1]:
        raise Refused(f"{op}: logits have shape {tuple(logits.shape)} for {columns} classes")
    need(op, logits.device, targets=(targets, torch.int64, (logits.shape[0],)))
    return storage


def _contiguous_logits_checks(logits, targets, columns, op):
    storage = _cross_entropy_checks(logits, targets, columns, op)
    need(op, logits.device, logits=(logits, None, None))
    return storage


def _pitched_logits_checks(logits, targets, op):
    storage, pitch = _cross_entropy_checks(logits, targets, 1, op), row_pitch(logits)
    if pitch is None:
        raise Refused(f"{op}: logits have strides {tuple(logits.stride())} for shape {tuple(logits.shape)}; kept_sum reads rows whose "
                      "numbers lie side by side and which do not overlap")
    return storage, pitch


def _cross_entropy_forward(logits, targets, columns, ignored, variant):
    storage = _contiguous_logits_checks(logits, targets, columns, "cross_entropy")
    rows, pitch = logits.shape
    if rows == 0:
        return logits.new_full((), float("nan"), dtype=F32)
    loss = logits.new_empty((), dtype=F32)
    with _On(logits.device):
        size = _library.bytes_of("cross_entropy_scratch", rows)
        scratch = _scratch(logits.device, size)
        _library.call("cross_entropy_forward", variant.encode(), storage, loss.data_ptr(), logits.data_ptr(), targets.data_ptr(), rows,
                      columns, pitch, ignored, scratch.data_ptr(), size, _stream(logits.device))
    return loss


def _cross_entropy_backward(logits, targets, upstream, columns, ignored, variant):
    storage = _contiguous_logits_checks(logits, targets, columns, "cross_entropy backward")
    need("cross_entropy backward", logits.device, upstream=(upstream, F32, ()))
    rows, pitch = logits.shape
    with _On(logits.device):
        size = _library.bytes_of("cross_entropy_scratch", rows)
        scratch = _scratch(logits.device, size)
        _library.call("cross_entropy_backward", variant.encode(), storage, logits.data_ptr(), targets.data_ptr(), upstream.data_ptr(), rows,
                      columns, pitch, ignored, scratch.data_ptr(), size, _stream(logits.device))


def _kept_sum_forward(logits, targets, ignored):
    storage, pitch = _pitched_logits_checks(logits, targets, "cross_entropy")
    rows, columns = logits.shape
    loss, kept = _kept_sum_forward_fake(logits, targets, ignored)
    if rows == 0:
        return loss.fill_(float("nan")), kept
    with _On(logits.device):
        size = _library.bytes_of("cross_entropy_scratch", rows)
        scratch = _scratch(logits.device, size)
        _library.call("cross_entropy_kept_sum_forward", storage, loss.data_ptr(), kept.data_ptr(), logits.data_ptr(), targets.data_ptr(),
                      rows, columns, pitch, ignored, scratch.data_ptr(), size, _stream(logits.device))
    return loss, kept


def _kept_sum_forward_fake(logits, targets, ignored):
    return logits.new_empty((), dtype=F32), logits.new_empty((logits.shape[0], 2), dtype=F32)


def _kept_sum_backward(logits, kept, targets, upstream, ignored):
    op = "cross_entropy backward"
    storage, pitch = _pitched_logits_checks(logits, targets, op)
    rows, columns = logits.shape
    need(op, logits.device, upstream=(upstream, F32, ()), kept=(kept, F32, (rows, 2)))
    gradient = _kept_sum_backward_fake(logits, kept, targets, upstream, ignored)
    with _On(logits.device):
        size = _library.bytes_of("cross_entropy_scratch", rows)
        scratch = _scratch(logits.device, size)
        _library.call("cross_entropy_kept_sum_backward", storage, gradient.data_ptr(), logits.data_ptr(), kept.data_ptr(),
                      targets.data_ptr(), upstream.data_ptr(), rows, columns, pitch, gradient.shape[1], ignored, scratch.data_ptr(), size,
                      _stream(logits.device))
    return gradient


def _kept_sum_backward_fake(logits, kept, targets, upstream, ignored):
    """With whole packs of 16 bytes in each row, so that the products behind it read it fast."""
    pack = 16 // logits.element_size()
    return logits.new_empty((logits.shape[0], (logits.shape[1] + pack - 1) // pack * pack))


# ---- adamw -----------------------------------------------------------------------------------------------------------


def _adamw(parameters, m, v, gradients, rounded, settings, clip_scale, decayed, variant):
    op, total = "adamw", parameters.numel()
    need(op, parameters.device, parameters=(parameters, F32, (total,)), m=(m, F32, (total,)), v=(v, F32, (total,)),
         gradients=(gradients, F32, (total,)), settings=(settings, torch.uint8, None), clip_scale=(clip_scale, F32, (1,)))
    if rounded.numel():
        need(op, parameters.device, rounded=(rounded, BF16, (total,)))
    with _On(parameters.device):
        _library.call("adamw", variant.encode(), 1 if rounded.numel() else 0, rounded.data_ptr() if rounded.numel() else None,
                      parameters.data_ptr(), m.data_ptr(), v.data_ptr(), gradients.data_ptr(), decayed, total, settings.data_ptr(),
                      clip_scale.data_ptr(), _stream(parameters.device))


_CUDA = {
    "layernorm_forward": _layernorm_forward,
    "layernorm_backward": _layernorm_backward,
    "gelu_forward": _gelu_forward,
    "gelu_backward": _gelu_backward,
    "attention_forward": _attention_forward,
    "attention_backward": _attention_backward,
    "sdpa_forward": _sdpa_forward,
    "sdpa_backward": _sdpa_backward,
    "cross_entropy_forward": _cross_entropy_forward,
    "cross_entropy_backward": _cross_entropy_backward,
    "cross_entropy_kept_sum_forward": _kept_sum_forward,
    "cross_entropy_kept_sum_backward": _kept_sum_backward,
    "adamw": _adamw,
}
_FAKE = {
    "layernorm_forward": _layernorm_forward_fake,
    "layernorm_backward": _layernorm_backward_fake,
    "gelu_forward": torch.empty_like,
    "gelu_backward": lambda dout, x: torch.empty_like(x),
    "attention_forward": _attention_forward_fake,
    "attention_backward": lambda dout, qkv, out, lse, heads, variant: torch.empty_like(qkv),
    "sdpa_forward": _sdpa_forward_fake,
    "sdpa_backward": _sdpa_backward_fake,
    "cross_entropy_forward": lambda logits, targets, columns, ignored, variant: logits.new_empty((), dtype=F32),
    "cross_entropy_backward": lambda logits, targets, upstream, columns, ignored, variant: None,
    "cross_entropy_kept_sum_forward": _kept_sum_forward_fake,
    "cross_entropy_kept_sum_backward": _kept_sum_backward_fake,
    "adamw": lambda *arguments: None,
}


def has_kernels(device):
    """Whether the ops can run on this kind of device: on CUDA's, and where a test registered kernels."""
    # PyTorch fails on a name that is no dispatch key, such as META.
    return device.type == "cuda" or (device.type == "cpu" and torch._C._dispatch_has_kernel_for_dispatch_key("stepscope::gelu_forward", "CPU"))


def _refusing(word):
    """The op on every device that has no kernel of it, where PyTorch's own sentence is a page of dispatch keys."""
    op = {"sdpa": "attention", "cross": "loss"}.get(word, word)

    def refuse(*arguments):
        device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
        raise Refused(f"{op}: the tensors are on {device}, and the kernels run on CUDA devices; move the model and the batch to one, or give "
                      "the ops back (undo() of the report)")

    return refuse


for _name in _SCHEMAS:
    LIBRARY.impl(_name, _CUDA[_name], "CUDA")
    LIBRARY.impl(_name, _refusing(_name.split("_")[0]), "CompositeExplicitAutograd")
    torch.library.register_fake("stepscope::" + _name, _FAKE[_name], lib=LIBRARY)
