"""A user's own kernel in place of an op: checked against PyTorch in float64 before it may be used, then replaced, benchmarked and profiled
like ours. Triton kernels and anything else that Python can call; CUDA source through cuda_kernel()."""
import functools
import inspect

import torch

from . import _reference as reference
from . import _ops, functional
from ._check import CheckReport, compare, hostile
from ._errors import CheckFailed, Refused, StepscopeError

KINDS = tuple(reference.NAMES)
_SHAPES = {"layernorm": [(37, 768), (5, 256)], "gelu": [(37, 3072), (1, 17)], "attention": [(2, 96, 4, 64)], "loss": [(33, 503)]}


class _WithBackward(torch.autograd.Function):
    """A kernel that autograd cannot look into: its own backward, or PyTorch's of the reference, computed from the inputs."""

    @staticmethod
    def forward(ctx, forward, backward, reference_function, *tensors):
        ctx.save_for_backward(*tensors)
        ctx.backward_function, ctx.reference_function = backward, reference_function
        return forward(*tensors)

    @staticmethod
    @functional.first_derivative
    def backward(ctx, upstream):
        tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        if ctx.backward_function is not None:
            given = ctx.backward_function(upstream.contiguous(), *tensors)
            given = list(given) if isinstance(given, (tuple, list)) else [given]
            _check_gradients(given, [t for t in tensors if t.is_floating_point()])
            given = iter(given)
            gradients = [next(given, None) if t.is_floating_point() else None for t in tensors]
        else:
            leaves = [t.detach().requires_grad_(n) for t, n in zip(tensors, needed)]
            with torch.enable_grad():
                out = ctx.reference_function(*leaves)
            found = iter(torch.autograd.grad(out, [t for t in leaves if t.requires_grad], upstream.to(out.dtype)))
            gradients = [next(found) if n else None for n in needed]
        return None, None, None, *gradients


def _already(answer, *tensors):
    return answer


def _check_gradients(given, tensors):
    if len(given) != len(tensors):
        raise Refused(f"backward returned {len(given)} gradients for {len(tensors)} floating tensors; return one for each, or None")
    for g, t in zip(given, tensors):
        if g is not None and getattr(g, "shape", None) != t.shape:
            what = f"a gradient of shape {tuple(g.shape)}" if isinstance(g, torch.Tensor) else type(g).__name__
            raise Refused(f"backward returned {what} for a tensor of shape {tuple(t.shape)}")


@functools.cache
def _keep_dynamo_out():
    """Dynamo must not look into a stranger's kernel: it breaks the graph there instead. Said when there is one, because torch.compiler.disable
    imports torch._dynamo, which takes a second."""
    UserOp.__call__ = torch.compiler.disable(UserOp.__call__)


class _Wrote(Exception):
    """A kernel changed this input."""


class UserOp:
    """What @stepscope.op makes: call it with the arguments of the op in torch.nn.functional, or give it to replace(layernorm=…)."""

    def __new__(cls, *arguments, **settings):
        _keep_dynamo_out()
        return super().__new__(cls)

    def __init__(self, kind, forward, backward):
        if not callable(forward):
            raise Refused(f"{kind}: {type(forward).__name__} cannot be called; a kernel is a function of tensors")
        self.kind, self.forward, self.backward = kind, forward, backward
        self.__name__ = getattr(forward, "__name__", type(forward).__name__)
        self.report, self.followed = None, False

    def __repr__(self):
        return f"<stepscope.op {self.kind} {self.__name__}>"

    def __call__(self, *arguments, **settings):
        functional.refuse_transforms(self.kind)
        tensors, found, shape = getattr(self, "_" + self.kind)(*arguments, **settings)
        functional.record(self.kind, tensors, found, lambda *t: self._run(found, *t))
        out = self._run(found, *tensors)
        if self.kind == "attention":
            return out.view(*out.shape[:2], found["heads"], -1).transpose(1, 2)
        return out.reshape(shape)

    def _run(self, settings, *tensors):
        function = reference.function_of(self.kind, settings)
        if self.kind == "attention":
            return self._attend(settings, *tensors)
        extra = {"loss": (settings.get("ignored"),)}.get(self.kind, ())
        wanted = len(inspect.signature(self.forward).parameters) if _has_signature(self.forward) else None
        extra = extra[: max(0, wanted - len(tensors))] if wanted is not None else ()
        if self.kind == "loss" and not extra and settings["ignored"] != -100:
            raise Refused(f"{self!r}: ignore_index is {settings['ignored']}, and this kernel takes none, so it was checked with PyTorch's -100 only; "
                          "give it the third parameter ignore_index")
        return self._differentiable(lambda *t: self._answer(*t, *extra), function, *tensors)

    def _answer(self, *arguments):
        out = self.forward(*arguments)
        if not isinstance(out, torch.Tensor):
            raise Refused(f"{self!r} returned {type(out).__name__}, expected a tensor")
        return out

    def _attend(self, settings, qkv):
        heads = settings["heads"]
        B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in qkv.split(C, dim=2))

        def function(q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        return self._differentiable(self._answer, function, q, k, v).transpose(1, 2).reshape(B, T, C)

    def _differentiable(self, forward, function, *tensors):
        if self.backward is None and torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            out = forward(*tensors)
            if out.requires_grad:  # made of PyTorch's ops: autograd knows it
                if not self.followed:
                    self._follow(out, tensors)
                return out
            forward = functools.partial(_already, out)  # the kernel ran, and a training step would pay for a second time
        return _WithBackward.apply(forward, self.backward, function, *tensors)

    def _follow(self, out, tensors):
        """Refuses a kernel whose answer autograd follows to some of the tensors only: a training would run, and move a part of the model."""
        missed = reference.not_reached(out, [t for t in tensors if t.requires_grad])
        if missed:
            names = reference.NAMES[self.kind] if self.kind != "attention" else ("query", "key", "value")
            which = ", ".join(n for n, t in zip(names, tensors) if any(t is m for m in missed))
            raise Refused(f"{self!r}: autograd finds no way from the answer to {which}; compute all of it where autograd looks (without no_grad and "
                          "detach), or none of it, or give backward=")
        self.followed = True

    # Arguments as torch.nn.functional has them: (tensors as in the check, settings of the reference, shape of the answer).
    def _layernorm(self, input, normalized_shape, weight=None, bias=None, eps=1e-5):
        if eps != 1e-5 or weight is None:
            raise Refused(f"layernorm: eps {eps} and weight {'given' if weight is not None else 'missing'}; own kernels are checked for "
                          "1e-5 with a weight")
        if weight.dim() != 1 or input.shape[-1:] != weight.shape:
            raise Refused(f"layernorm: weight {tuple(weight.shape)} of an input {tuple(input.shape)}; own kernels are checked for the last dimension "
                          "only")
        bias = torch.zeros_like(weight) if bias is None else bias
        storage = functional._autocast_type(input.device.type, "layernorm") or weight.dtype
        x = input.to(storage)  # one type for a user's kernel: the activations'
        return (reference.as_rows(x).contiguous(), weight.to(storage), bias.to(storage)), {"storage": storage}, x.shape

    def _gelu(self, input, approximate="tanh"):
        if approximate != "tanh":
            raise Refused("gelu: own kernels are checked against the tanh form")
        return (reference.as_rows(input).contiguous(),), {}, input.shape

    def _attention(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if attn_mask is not None or dropout_p or not is_causal or scale is not None or key.shape != query.shape:
            raise Refused("attention: own kernels are checked for causal self-attention without mask, dropout or scale")
        if query.dim() != 4 or value.shape != query.shape:
            raise Refused(f"attention: query {tuple(query.shape)}, value {tuple(value.shape)}; own kernels are checked for tensors of one shape "
                          "(batch, heads, tokens, head size)")
        B, heads, T, size = query.shape
        return (torch.cat([t.transpose(1, 2).reshape(B, T, heads * size) for t in (query, key, value)], dim=2),), {"heads": heads}, None

    def _loss(self, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
        if any(given is not None for given in (weight, size_average, reduce)) or reduction != "mean" or label_smoothing:
            raise Refused("loss: own kernels are checked for the plain mean")
        if input.dim() != 2 or target.dim() != 1 or target.shape[0] != input.shape[0]:
            raise Refused(f"loss: input {tuple(input.shape)} with target {tuple(target.shape)}; own kernels are checked for (rows, classes) and "
                          "(rows,)")
        if target.is_floating_point() or target.dtype == torch.bool:
            raise Refused(f"loss: target is {_ops.word_of(target.dtype)}; own kernels are checked for class indices")
        return (input.contiguous(), target.to(torch.int64).contiguous()), {"ignored": ignore_index}, ()

    # ---- the same check that our ops pass -----------------------------------------------------------------------------

    def calls(self, shapes, dtypes, device):
        """Calls with normal numbers at each shape and type, and with hostile rows at the first shape."""
        for dtype in dtypes:
            for i, shape in enumerate(shapes):
                tensors, settings = _example(self.kind, shape, dtype, device)
                run = (lambda settings: lambda *t: self._run(settings, *t))(settings)
                call = functional.Call(self.kind, tensors, settings, run)
                call.site = _ops.word_of(dtype)
                yield call
                if i == 0:
                    yield hostile(self.kind, tensors, settings, run)

    def check(self, shapes=None, dtypes=(torch.float32, torch.bfloat16), device=None):
        """Forward and gradients against float64; raises CheckFailed with the rows that show what is wrong."""
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        rows, self.followed = [], True  # the rows have what is missing
        try:
            for call in self.calls(shapes or _SHAPES[self.kind], dtypes, device):
                call.run = self._watched(call.run)
                rows += self._compared(call, rows)
        finally:
            self.followed = False
        self.report = CheckReport(rows)
        if not self.report.ok:
            bad = sum(not r.ok for r in rows)
            raise CheckFailed(f"{self!r} is refused: {bad} of {len(rows)} tensors are worse than twice PyTorch's own error\n{self.report}", rows)
        self.followed = True
        return self.report

    def _watched(self, run):
        def watched(*tensors):
            before = [t.detach().clone() for t in tensors]
            out = run(*tensors)
            for name, t, was in zip(reference.NAMES[self.kind], tensors, before):
                if not torch.equal(t.detach(), was):
                    raise _Wrote(name)
            return out
        return watched

    def _compared(self, call, rows):
        """Rows of one call. Whatever a stranger's kernel raises there names the kernel."""
        where = f"{'x'.join(map(str, call.tensors[0].shape))}, {call.site}"
        try:
            return compare(call)
        except _Wrote as e:
            raise CheckFailed(f"{self!r} is refused: it changes {e}, which is its input and the model's ({where}); write into a tensor of its own",
                              rows) from None
        except StepscopeError:
            raise
        except Exception as e:
            raise CheckFailed(f"{self!r} is refused: it raised {type(e).__name__} ({where}): {e}", rows) from e

    def bench(self, shape=None, dtype=torch.bfloat16, device=None, **settings):
        """Against PyTorch's own, alternating (bench.py)."""
        from ._bench import bench_call
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        call = next(self.calls([shape or _SHAPES[self.kind][0]], [dtype], device))
        return bench_call(call, **settings)


def _has_signature(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


_FORMS = {"layernorm": (None, "(rows, channels)"), "gelu": (None, "(rows, columns)"), "attention": (4, "(batch, tokens, heads, head size)"),
          "loss": (2, "(rows, classes)")}


def _check_shape(kind, shape):
    length, form = _FORMS[kind]
    if not isinstance(shape, (tuple, list)) or not shape or not all(isinstance(n, int) and n > 0 for n in shape) or (
            length is not None and len(shape) != length):
        raise Refused(f"{kind}: {shape!r} is no shape for a check; shapes is a list, each {form}")


def _example(kind, shape, dtype, device):
    _check_shape(kind, shape)
    generator = torch.Generator().manual_seed(7)

    def normal(*s, scale=1.0, mean=0.0):
        return (torch.randn(s, generator=generator) * scale + mean).to(device=device, dtype=dtype)

    if kind == "layernorm":
        return (normal(*shape), normal(shape[-1], scale=0.1, mean=1.0), normal(shape[-1], scale=0.1)), {"storage": dtype}
    if kind == "gelu":
        return (normal(*shape, scale=2.0),), {}
    if kind == "attention":
        B, T, heads, size = shape
        return (normal(B, T, 3 * heads * size),), {"heads": heads}
    rows, classes = shape
    targets = torch.randint(classes, (rows,), generator=generator).to(device)
    targets[1::5] = -100  # rows that do not count, as the labels of Hugging Face's models have them
    return (normal(rows, classes, scale=2.0), targets), {"ignored": -100}


def op(kind, *, backward=None, check=True, shapes=None, dtypes=(torch.float32, torch.bfloat16), device=None):
    """Makes a user's kernel an op that replace() takes, if it is right.

        @stepscope.op("layernorm")
        def mine(x, weight, bias): ...        # (rows, C), (C), (C) -> (rows, C)

    kinds and what the kernel is called with: layernorm (x, weight, bias), eps 1e-5; gelu (x), tanh form; attention (query, key, value),
    causal, each (batch, heads, tokens, head size); loss (logits, targets, ignore_index), a mean; ignore_index may be left out by a kernel that
    takes it for -100. x is (rows, columns); it, logits and targets are contiguous, whatever the model has.
    `backward(upstream, *tensors)` returns the gradients of the floating tensors. Without it autograd differentiates a kernel made of
    PyTorch's ops, and any other gets PyTorch's own gradient, computed from the inputs.

    With `check` the kernel runs here, at `shapes` and `dtypes` and on rows made to break it; a wrong one raises CheckFailed with the
    rows that show it."""
    if callable(kind):
        raise Refused(f"stepscope.op needs the op in parentheses, for example @stepscope.op({KINDS[0]!r}); there are {', '.join(KINDS)}")
    if kind not in KINDS:
        raise Refused(f"{kind!r} is no op for own kernels; there are {', '.join(KINDS)}")

    def decorate(forward):
        made = UserOp(kind, forward, backward)
        if check:
            made.check(shapes, dtypes, device)
        return made

    return decorate
