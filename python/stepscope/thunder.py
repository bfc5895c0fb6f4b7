"""An executor for Lightning Thunder: the kernels in place of layer_norm, gelu, scaled_dot_product_attention and cross_entropy of a trace,
gradients included.

    compiled = thunder.jit(model, executors=[stepscope.thunder.executor, *thunder.get_default_executors()])
    compiled(x)
    print(stepscope.thunder.report(compiled))

What a kernel cannot take stays with the executors behind it, and report() says why. A trace knows shapes, types and devices and no
strides, so tensors whose layout no kernel reads are copied when the program runs. Written for Thunder 0.2.6."""
import dataclasses
import math

import torch

from . import _library, _ops, functional
from ._errors import Refused
from ._tables import table
from ._variants import choose

try:
    import thunder as _thunder
    from thunder.core import dtypes as _dtypes
    from thunder.core.compile_data import compile_data_and_stats as _compile_data_and_stats
    from thunder.core.devices import to_torch_device as _torch_device
    from thunder.core.proxies import TensorProxy as _Proxy
    from thunder.core.transforms import get_grad as _get_grad
    from thunder.core.transforms import put_grad as _put_grad
    from thunder.extend import OperatorExecutor as _OperatorExecutor
    from thunder.extend import register_executor as _register_executor
except ImportError as e:
    raise ImportError(f"stepscope.thunder needs Lightning Thunder, which does not import here ({e}); it is the package lightning-thunder "
                      "(pip install lightning-thunder), and this executor was written for its version 0.2.6") from e

OPS = ("layernorm", "gelu", "attention", "loss")
_op = torch.ops.stepscope
_F32 = _dtypes.float32
_STORED = {_dtypes.float32: torch.float32, _dtypes.bfloat16: torch.bfloat16}

# Widest rows that the layernorm kernels hold, where they hold one: {(slot, variant): {type: (in packs of 16 bytes, value by value)}}. The
# library says the same when it is called, which is too late for a checker (gpt2/ops/layernorm_forward.cu and _backward.cu: why_not).
WIDEST = {("layernorm_forward", "warp_per_row"): {_dtypes.bfloat16: (2048, 256)},
          ("layernorm_backward", "fused_rows"): {_dtypes.bfloat16: (8192, 2048), _dtypes.float32: (8192, 2048)}}


class Executor(_OperatorExecutor):
    """Thunder's executor, with the sentences of its refusals."""

    def __init__(self, name, slots):
        super().__init__(name)
        self.slots, self._why_not = slots, {}

    def why_not(self, call):
        """Why this executor leaves a bound symbol of a trace to others; None where it takes it, "" where the symbol is none of its ops."""
        refuses = self._why_not.get(call.sym.id)
        return "" if refuses is None else refuses(*call.args, **call.kwargs)

    def _operator(self, name, meta, run):
        # Prefixed: Thunder calls an operator by its name, and two executors may serve one program.
        return self.register_operator(f"{self.name}_{name}", meta=meta, fn=run)

    def _take(self, symbol, why_not, forward, forward_and_gradients):
        self._why_not[symbol.id] = why_not
        self.register_implementation(symbol, checker=lambda *a, **k: why_not(*a, **k) is None, execution_transform=forward,
                                     grad_transform=forward_and_gradients)


# ---- what every op asks of its tensors ---------------------------------------------------------------------------------


def _word(dtype):
    return _ops.word_of(_dtypes.to_torch_dtype(dtype))


def _why_not_tensors(**tensors):
    """Of tensors that must be stored alike: a device with kernels, one of their types, sizes that the trace knows."""
    first_name, first = next(iter(tensors.items()))
    for name, t in tensors.items():
        if not isinstance(t, _Proxy):
            return f"{name} is no tensor"
        if t.dtype not in _STORED:
            return f"{name} is {_word(t.dtype)}; the kernels store float32 and bfloat16"
        if t.dtype != first.dtype:
            return f"{name} is {_word(t.dtype)} and {first_name} is {_word(first.dtype)}; the kernels take one type"
        if not all(isinstance(n, int) for n in t.shape):
            return f"the shape of {name} is symbolic; the kernels are chosen by numbers"
        if 0 in t.shape:
            return f"{name} is empty"
    return _why_not_devices(**tensors)


def _why_not_devices(**tensors):
    devices = {name: _torch_device(t.device) for name, t in tensors.items()}
    first_name, first = next(iter(devices.items()))
    for name, device in devices.items():
        if device != first:
            return f"{name} is on {device} and {first_name} on {first}"
    if not _ops.has_kernels(first):
        return f"{first_name} is on {first}; the kernels run on CUDA devices"
    if first.type == "cuda":
        _library.load()  # Raises where there is none: who asks for this executor does not want another one in silence.
    return None


def _like(proxy, shape=None, dtype=None):
    return _Proxy(like=proxy, shape=proxy.shape if shape is None else shape, dtype=dtype or proxy.dtype)


def _readable(tensor):
    """Contiguous and at an address that the kernels can read in packs of 16 bytes, which the checkers count on; a copy where it is not."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


# ---- layernorm -------------------------------------------------------------------------------------------------------


def _why_not_width(slots, dtype, channels):
    pack = 8 if dtype is _dtypes.bfloat16 else 4
    for slot, variant in slots.items():
        most = WIDEST.get((slot, variant), {}).get(dtype)
        if most is not None and channels > most[channels % pack != 0]:
            return f"{slot}={variant} holds rows of up to {most[channels % pack != 0]} channels of this alignment, and this has {channels}"
    return None


def _register_layernorm(executor, slots):
    def why_not(a, normalized_shape, weight=None, bias=None, eps=1e-5):
        if weight is None:
            return "it has no weight (elementwise_affine=False)"
        # Thunder reads the normalized dimensions off the weight.
        if len(weight.shape) != 1 or a.shape[-1:] != weight.shape or (bias is not None and bias.shape != weight.shape):
            return f"weight {tuple(weight.shape)} of an input {tuple(a.shape)}; the kernels normalize the last dimension only"
        if eps != 1e-5:
            return f"its eps is {eps}, the kernels have 1e-5"
        given = {"input": a, "weight": weight} | ({} if bias is None else {"bias": bias})
        return _why_not_tensors(**given) or _why_not_width(slots, a.dtype, a.shape[-1])

    def forward_meta(x, weight, bias):
        rows = (math.prod(x.shape[:-1]),)
        return _like(x), _like(x, rows, _F32), _like(x, rows, _F32)

    def run_forward(x, weight, bias):
        flat, bias = _readable(x.reshape(-1, x.shape[-1])), torch.zeros_like(weight) if bias is None else _readable(bias)
        out, mean, rstd, _ = _op.layernorm_forward(flat, _readable(weight), bias, slots["layernorm_forward"])
        return out.view(x.shape), mean, rstd

    def run_backward(dout, x, mean, rstd, weight):
        flat, dout = (_readable(t.reshape(-1, x.shape[-1])) for t in (x, dout))
        dx, dweight, dbias = _op.layernorm_backward(dout, flat, mean, rstd, _readable(weight), False, slots["layernorm_backward"])
        return dx.view(x.shape), dweight.to(weight.dtype), dbias.to(weight.dtype)

    forward_op = executor._operator("layernorm_forward", forward_meta, run_forward)
    backward_op = executor._operator("layernorm_backward", lambda dout, x, mean, rstd, weight: (_like(x), _like(weight), _like(weight)),
                                     run_backward)

    def forward(a, normalized_shape, weight=None, bias=None, eps=1e-5):
        return forward_op(a, weight, bias)[0]

    def forward_and_gradients(a, normalized_shape, weight=None, bias=None, eps=1e-5):
        out, mean, rstd = forward_op(a, weight, bias)
        da, dweight, dbias = backward_op(_get_grad(out), a, mean, rstd, weight)
        for tensor, gradient in ((a, da), (weight, dweight), (bias, dbias)):
            if tensor is not None:
                _put_grad(tensor, gradient)
        return out

    executor._take(_thunder.torch.layer_norm, why_not, forward, forward_and_gradients)


# ---- gelu ------------------------------------------------------------------------------------------------------------


def _register_gelu(executor, slots):
    def why_not(a, *, approximate="none"):
        if approximate != "tanh":
            return "it is the exact GELU (approximate='none'), another function than the tanh form"
        return _why_not_tensors(input=a)

    forward_op = executor._operator("gelu_forward", lambda x: _like(x), lambda x: _op.gelu_forward(x.contiguous()))
    backward_op = executor._operator("gelu_backward", lambda dout, x: _like(x),
                                     lambda dout, x: _op.gelu_backward(dout.contiguous(), x.contiguous()))

    def forward(a, *, approximate="none"):
        return forward_op(a)

    def forward_and_gradients(a, *, approximate="none"):
        out = forward_op(a)
        _put_grad(a, backward_op(_get_grad(out), a))
        return out

    executor._take(_thunder.torch.gelu, why_not, forward, forward_and_gradients)


# ---- attention -------------------------------------------------------------------------------------------------------


def _why_no_attention(device, storage, shape, variants):
    """What the library says of heads and sizes. The CPU has none: only tests put kernels there."""
    if device.type != "cuda":
        return None
    B, heads, T, size = shape
    try:
        with _ops._On(device):
            for name, variant in zip(("attention_forward_scratch", "attention_backward_scratch"), variants):
                _library.bytes_of(name, variant.encode(), storage, B, T, heads * size, heads)
    except Refused as refusal:
        return str(refusal)
    return None


def _register_attention(executor, slots):
    def variants(dtype):
        return functional._attention_variants(dtype, slots["attention_forward"], slots["attention_backward"])

    def why_not(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
        if query.ndim != 4 or key.shape != query.shape or value.shape != query.shape:
            return (f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}; the kernels take three tensors of one "
                    "shape (batch, heads, tokens, head size)")
        if attn_mask is not None:
            return "a mask was given; the kernels are causal and take none"
        if not is_causal:
            return "is_causal is False; the kernels are causal"
        if dropout_p:
            return f"dropout of {dropout_p}; the kernels have none"
        why = _why_not_tensors(query=query, key=key, value=value)
        if why is None and scale is not None and not math.isclose(scale, query.shape[3]**-0.5, rel_tol=1e-6):
            why = f"scale is {scale}, the kernels have 1/sqrt(head size) = {query.shape[3]**-0.5}"
        if why is None:
            dtype = _STORED[query.dtype]
            why = _why_no_attention(_torch_device(query.device), _ops._CODE[dtype], query.shape, variants(dtype))
        return why

    def run_forward(q, k, v):
        B, heads, T, size = q.shape
        out, lse = _op.sdpa_forward(q, k, v, variants(q.dtype)[0])
        return out.view(B, T, heads, size).transpose(1, 2), lse

    def run_backward(dout, q, k, v, out, lse):
        B, heads, T, size = q.shape
        dout, out = (t.transpose(1, 2).reshape(B, T, heads * size) for t in (dout, out))
        return functional.heads_of(_op.sdpa_backward(dout.contiguous(), q, k, v, out, lse, variants(q.dtype)[1]), heads)

    forward_op = executor._operator("attention_forward", lambda q, k, v: (_like(q), _like(q, q.shape[:3], _F32)), run_forward)
    backward_op = executor._operator("attention_backward", lambda dout, q, k, v, out, lse: (_like(q), _like(k), _like(v)), run_backward)

    def forward(query, key, value, *settings, **named):
        return forward_op(query, key, value)[0]

    def forward_and_gradients(query, key, value, *settings, **named):
        out, lse = forward_op(query, key, value)
        for tensor, gradient in zip((query, key, value), backward_op(_get_grad(out), query, key, value, out, lse)):
            _put_grad(tensor, gradient)
        return out

    executor._take(_thunder.torch.scaled_dot_product_attention, why_not, forward, forward_and_gradients)


# ---- loss ------------------------------------------------------------------------------------------------------------


def _register_loss(executor, slots):
    if slots["classifier"] != "kept_sum":
        raise Refused(f"classifier={slots['classifier']} turns logits into their gradient in place, which a Thunder trace has no operator "
                      "for; use kept_sum")

    def why_not(a, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
        for name, given in (("weight", weight), ("size_average", size_average), ("reduce", reduce)):
            if given is not None:
                return f"{name} was given; the kernels compute the plain mean"
        if reduction != "mean" or label_smoothing:
            return f"reduction={reduction!r}, label_smoothing={label_smoothing}; the kernels compute the plain mean"
        if a.ndim != 2 or target.ndim != 1 or target.shape[0] != a.shape[0]:
            return f"input {tuple(a.shape)} with target {tuple(target.shape)}; the kernels take (rows, classes) and (rows,)"
        if not _dtypes.is_exact_dtype(target.dtype) or _dtypes.is_boolean_dtype(target.dtype):
            return f"target is {_word(target.dtype)}; the kernels take class indices"
        return _why_not_tensors(input=a) or _why_not_devices(input=a, target=target)

    def rows_of(logits):
        return logits if _ops.row_pitch(logits) is not None else logits.contiguous()

    def run_forward(logits, targets, ignored):
        loss, kept = _op.cross_entropy_kept_sum_forward(rows_of(logits), targets.to(torch.int64).contiguous(), ignored)
        return loss.to(logits.dtype), kept  # PyTorch's loss has the type of the logits

    def run_backward(dloss, logits, kept, targets, ignored):
        gradient = _op.cross_entropy_kept_sum_backward(rows_of(logits), kept, targets.to(torch.int64).contiguous(),
                                                       dloss.to(torch.float32).contiguous(), ignored)
        return gradient[:, :logits.shape[1]]

    forward_op = executor._operator("loss_forward", lambda logits, targets, ignored: (_like(logits, ()), _like(logits, (logits.shape[0], 2), _F32)),
                                    run_forward)
    backward_op = executor._operator("loss_backward", lambda dloss, logits, kept, targets, ignored: _like(logits), run_backward)

    def forward(a, target, weight=None, size_average=None, ignore_index=-100, *settings, **named):
        return forward_op(a, target, ignore_index)[0]

    def forward_and_gradients(a, target, weight=None, size_average=None, ignore_index=-100, *settings, **named):
        loss, kept = forward_op(a, target, ignore_index)
        _put_grad(a, backward_op(_get_grad(loss), a, kept, target, ignore_index))
        return loss

    executor._take(_thunder.torch.cross_entropy, why_not, forward, forward_and_gradients)


# ---- executors and what they took --------------------------------------------------------------------------------------

_REGISTER = {"layernorm": _register_layernorm, "gelu": _register_gelu, "attention": _register_attention, "loss": _register_loss}


def make(name, **asked):
    """An executor of some ops, with variants as replace() takes them: make("mine", gelu=True, attention="flash"). Without any op named:
    all four with their defaults. Registered with Thunder under `name`. Raises Refused for what no executor can hold."""
    if not isinstance(name, str) or not name.isidentifier():
        raise Refused(f"{name!r} is no name for an executor: it stands in front of its operators' names in Thunder's programs, so it is an "
                      "identifier")
    chosen = choose(asked or {op: True for op in OPS})
    for op, slots in chosen.items():
        if op not in OPS:
            raise Refused(f"{op} is no op of a Thunder program; use stepscope.AdamW beside it")
        if callable(slots):
            raise Refused(f"{op} is given a kernel of its own; register it with Thunder by itself, or take it through replace()")
    made = Executor(name, chosen)
    for op, slots in chosen.items():
        _REGISTER[op](made, slots)
    return _register_executor(made)


executor = make("stepscope")


@dataclasses.dataclass
class Row:
    op: str      # Thunder's name of it
    tensor: str  # type and shape of its first tensor
    taken_by: str
    why: str     # why no executor of ours took it; "" where one did


class Report:
    """The ops of the last program that are one of ours. print() it."""

    def __init__(self, rows):
        self.rows = rows

    def __str__(self):
        if not self.rows:
            return "the program has no op that these executors know"
        counts = {}
        for r in self.rows:
            key = (r.op, r.tensor, r.taken_by, r.why)
            counts[key] = counts.get(key, 0) + 1
        return table(("op", "tensor", "times", "taken by", "why not ours"), [(op, t, n, by, why) for (op, t, by, why), n in counts.items()])


def _row(call, executors, ours):
    taken = next((e for e in executors if e.can_execute_or_fuse(call)), None)
    first = next(a for a in call.args if isinstance(a, _Proxy))
    return Row(call.sym.name, f"{_word(first.dtype)} {'x'.join(map(str, first.shape))}", "Thunder's parts of it" if taken is None else taken.name,
               "" if taken in ours else next(filter(None, (e.why_not(call) for e in ours)), "another executor stands before it"))


def report(compiled):
    """Which of our ops the last run of `compiled` (made by thunder.jit) had, who took each, and why it was not us."""
    data, stats = (getattr(compiled, name, None) for name in ("_lc_cd", "_lc_cs"))
    if data is None or stats is None:
        raise Refused(f"{type(compiled).__name__} was not made by thunder.jit")
    if not stats.last_traces:
        raise Refused("the compiled model has not run yet; report() reads the program of its last run")
    ours = [e for e in data.executors_list if isinstance(e, Executor)]
    if not ours:
        raise Refused("no executor of stepscope is among this program's; thunder.jit(model, executors=[stepscope.thunder.executor, "
                      "*thunder.get_default_executors()])")
    with _compile_data_and_stats(data, stats):
        calls = [c for c in stats.last_traces[0].bound_symbols if any(c.sym.id in e.implmap for e in ours)]
        return Report([_row(c, data.executors_list, ours) for c in calls])
