"""Which parts of a model are which op, and what of it replace() swaps. How a module is swapped is in _swap.py, what is asked of Hugging Face's
GPT-2 in _hugging_face.py, and how a forward that calls torch.nn.functional by name gets other functions in _rebound.py."""
import contextlib
import dataclasses
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import _hugging_face, _library, _ops, functional
from ._errors import Refused
from ._rebound import Rebound, functional_calls
from ._swap import OWN_FORWARD, function_with, inside_compiled, is_replaced, own_class, swap_class, why_no_kernel_for
from ._tables import table
from ._variants import LEFT_TO_INDUCTOR, OPS, choose, refuse_unknown


@dataclasses.dataclass
class Site:
    """One place of the model. `why` is empty where it was replaced."""
    name: str
    what: str
    op: str
    variants: str = ""
    why: str = ""
    swap: object = None  # callable on: to ours (True) and back (False); off() keeps what it returns until it swaps again


class Report:
    """What replace() did. print() it. off() is PyTorch again for a while, undo() for good."""

    def __init__(self, model, chosen):
        self.model, self.chosen, self.sites, self.notes = model, chosen, [], []
        self.on, self.undone = True, False

    @property
    def replaced(self):
        return [s for s in self.sites if not s.why]

    @property
    def not_replaced(self):
        return [s for s in self.sites if s.why]

    def undo(self):
        self._set(False)
        self.undone = True

    def redo(self):
        self._set(True)
        self.undone = False

    def _set(self, on):
        """Swaps all sites. While a caller keeps what it returns, an optimizer that is swapped back goes on with its float32 masters."""
        kept = []
        if on != self.on:
            if on:
                _refuse_replaced(self.model)
            try:
                for site in self.replaced:
                    kept.append(site.swap(on))
            except BaseException:  # no memory, ctrl-C: half a model would be ours, and undo() would think that none is
                for site in self.replaced[:len(kept)]:
                    site.swap(not on)
                raise
            self.on = on
        return kept

    @contextlib.contextmanager
    def off(self):
        """PyTorch's own ops inside the block."""
        before = self.on
        kept = self._set(False)
        try:
            yield
        finally:
            self._set(before and not self.undone)  # undo() inside the block is for good, too
            del kept  # not before: an optimizer goes on with its float32 masters

    def __str__(self):
        parts = []
        if self.replaced:
            parts.append(table(("replaced", "was", "op", "variants"), [(s.name or "(model)", s.what, s.op, s.variants) for s in self.replaced]))
        if self.not_replaced:
            parts.append(table(("not replaced", "is", "op", "why"), [(s.name or "(model)", s.what, s.op, s.why) for s in self.not_replaced]))
        return "\n\n".join(parts + self.notes) or "nothing in this model is one of the asked ops"


def _variant_text(slots):
    if callable(slots):
        return "own kernel " + getattr(slots, "__name__", "?")
    return ", ".join(f"{k}={v or ('cudnn or flash, by type' if functional.has_cudnn() else 'flash')}" for k, v in slots.items())


# ---- what is recognized: each returns why not, or makes the swap ------------------------------------------------------


def _layernorm(module, slots):
    if type(module).forward is not nn.LayerNorm.forward:
        return f"{type(module).__name__} has a forward of its own, which may compute something else than nn.LayerNorm's"
    if len(module.normalized_shape) != 1:
        return f"it normalizes {len(module.normalized_shape)} dimensions, the kernels one"
    if module.weight is None:
        return "it has no weight (elementwise_affine=False)"
    if module.eps != 1e-5:
        return f"its eps is {module.eps}, the kernels have 1e-5"
    if module.weight.dtype not in (torch.float32, torch.bfloat16):
        return f"its weights are {str(module.weight.dtype).removeprefix('torch.')}, the kernels have float32 and bfloat16"
    function = function_with("layernorm", slots)

    def forward(self, input):
        return function(input, self.normalized_shape, self.weight, self.bias, self.eps)

    return swap_class(module, forward)


def _computes_tanh_gelu(module):
    """Whether a module without parameters is the tanh form, found by asking its forward: a user's hooks are not for us, and stay behind ours.
    On the CPU in float32, whatever the user's defaults are while replace() runs."""
    x = torch.linspace(-6, 6, 97, device="cpu", dtype=torch.float32)
    try:
        with torch.no_grad(), torch.device("cpu"):
            y = type(module).forward(module, x)
    except Exception:  # a stranger's module; whatever it raises, it is not the function
        return False
    return isinstance(y, torch.Tensor) and torch.allclose(y, F.gelu(x, approximate="tanh"), rtol=1e-5, atol=1e-6)


def _gelu(module, slots):
    if isinstance(module, nn.GELU) and module.approximate != "tanh":
        return "it is the exact GELU (approximate='none'), another function than the tanh form"
    if not _computes_tanh_gelu(module):
        return "asked for 97 numbers, it did not answer with the tanh form of GELU"
    function = function_with("gelu", slots)

    def forward(self, input):
        return function(input, approximate="tanh")

    return swap_class(module, forward)


def _gelu_by_form(slots):
    """F.gelu in either form: the tanh form is ours, the exact one stays PyTorch's."""
    ours = function_with("gelu", slots)

    def gelu(input, approximate="none"):
        return ours(input, approximate="tanh") if approximate == "tanh" else F.gelu(input, approximate=approximate)

    return gelu


def _calls(module, calls, chosen):
    changed = {name: _gelu_by_form(chosen[op]) if op == "gelu" else function_with(op, chosen[op]) for name, op in calls.items()}
    rebound = Rebound(type(module).forward, changed)
    if rebound.function is None:
        return "its forward reaches the function in a way that was not followed; call stepscope.functional there"
    rebound.put(True)
    swap_forward = swap_class(module, rebound.function)
    ours, copies = type(module), weakref.WeakSet()

    def new(cls, *arguments, **settings):
        make = super(ours, cls).__new__
        made = make(cls) if make is object.__new__ else make(cls, *arguments, **settings)
        copies.add(made)
        return made

    ours.__new__ = new

    def swap(on):
        swap_forward(on)
        if on or not copies:  # a copy stays replaced
            rebound.put(on)

    return swap


# ---- replace ----------------------------------------------------------------------------------------------------------


def _kind_of(module):
    """(op, how to swap) of a module that is an op as a whole."""
    name = type(module).__name__
    # A subclass that calls F.layer_norm in a forward of its own is followed as any forward is.
    if isinstance(module, nn.LayerNorm) and "layer_norm" not in functional_calls(module):
        return "layernorm", _layernorm
    if isinstance(module, nn.GELU) or (name in ("NewGELU", "NewGELUActivation", "GELUTanh", "PytorchGELUTanh", "FastGELUActivation")
                                       and not list(module.parameters())):
        return "gelu", _gelu
    if _hugging_face.is_attention(module):
        return "attention", _hugging_face.swap_attention
    return None, None


def _refuse_replaced(model):
    for name, module in model.named_modules():
        if is_replaced(module):
            raise Refused(f"{name or 'the model'} is replaced already; call undo() of the report before. (A deep copy of a replaced model has "
                          "no report: undo first, then copy.)")


def _add(report, name, module, op, slots, result):
    site = Site(name, own_class(module).__name__, op)
    if isinstance(result, str):
        site.why = result
    else:
        site.swap, site.variants = result, _variant_text(slots)
    report.sites.append(site)


def _replace_modules(report, model, chosen):
    modules, gpt2 = _hugging_face.gpt2_models(model) if "attention" in chosen else ({}, {})
    left = _hugging_face.left_attentions(modules, gpt2)
    no_gelu = why_no_kernel_for(model).replace("its weights", "the model's weights")  # it has none of its own
    for name, module in model.named_modules():
        op, swap = _kind_of(module)
        if op in chosen:
            why = OWN_FORWARD if "forward" in vars(module) else left.get(name) or (no_gelu if op == "gelu" else "")
            _add(report, name, module, op, chosen[op], why or swap(module, chosen[op]))
        elif op is None:
            calls = {f: o for f, o in functional_calls(module).items() if o in chosen}
            if calls:
                result = OWN_FORWARD if "forward" in vars(module) else _calls(module, calls, chosen)
                for i, o in enumerate(calls.values()):
                    _add(report, name, module, o, chosen[o], result if i == 0 or isinstance(result, str) else lambda on: None)
    for name, attentions in gpt2.items():
        if name is not None and not any(a in left for a in attentions):
            report.sites.append(Site(f"{name}.config".lstrip("."), "with cache and mask", "attention", "without",
                                     swap=_hugging_face.without_cache_and_mask(modules[name])))


def _replace_optimizer(report, model, optimizer, slots):
    from .optim import take_over
    if optimizer is None:
        report.sites.append(Site("", "optimizer", "adamw", why="no optimizer was given: replace(model, optimizer=…), or stepscope.AdamW"))
        return
    result = take_over(optimizer, model)
    _add(report, "optimizer", optimizer, "adamw", slots, result)


def _replace_all(report, model, optimizer, chosen):
    _replace_modules(report, model, {op: s for op, s in chosen.items() if op != "adamw"})
    if "loss" in chosen:
        for name, module in _hugging_face.losses(model):
            _add(report, name, module, "loss", chosen["loss"], _hugging_face.swap_loss(module, chosen["loss"]))
    if "adamw" in chosen:
        _replace_optimizer(report, model, optimizer, chosen["adamw"])
    elif optimizer is not None:
        report.sites.append(Site("optimizer", type(optimizer).__name__, "adamw", why="ops were named and adamw was not; adamw=True replaces it"))
    for op in chosen:
        if not any(s.op == op for s in report.sites):
            report.sites.append(Site("", own_class(model).__name__, op, why="no such op was recognized in this model"))


SLOWER = "slower than PyTorch's where the library has no cuDNN; attention='flash' replaces it all the same"


def _leave(report, model, op, why):
    """Lists the places of an op that replace(model) leaves to PyTorch."""
    for name, module in model.named_modules():
        if _kind_of(module)[0] == op or op in functional_calls(module).values():
            report.sites.append(Site(name, type(module).__name__, op, why=why))
    if op == "loss":
        report.sites += [Site(name, type(m).__name__, op, why=why) for name, m in _hugging_face.losses(model)]


def _is_compiled(model):
    """Whether torch.compile(model) or model.compile() was called, also before DistributedDataParallel or the like was put around it."""
    if inside_compiled(model) is not model or getattr(model, "_compiled_call_impl", None) is not None:
        return True
    wraps = type(model).__module__.startswith(("torch.nn.parallel.", "torch.distributed.fsdp."))
    return wraps and isinstance(getattr(model, "module", None), nn.Module) and _is_compiled(model.module)


def _left_by_default(compiled):
    """{op: why} of what replace(model) leaves to PyTorch."""
    left = dict(LEFT_TO_INDUCTOR) if compiled else {}
    return left if functional.has_cudnn() else {**left, "attention": SLOWER}


def _what_runs_no_kernel(report):
    """Sentences for a reader who would else meet them at the first step. A model may still be moved."""
    if not any(not callable(report.chosen[s.op]) for s in report.replaced):
        return []
    notes, parameter = [], next(report.model.parameters(), None)
    here = parameter is None or _ops.has_kernels(parameter.device)
    if not here:
        notes.append(f"The model is on {parameter.device}; the kernels run on CUDA devices, so move it to one before it runs.")
    missing = _library.why_missing() if not here or (parameter is not None and parameter.is_cuda) else None
    return notes + ([f"No kernel can run yet: {missing}"] if missing else [])


def replace(model, *, optimizer=None, compiled=None, **asked):
    """Replaces ops of a model by stepscope's kernels, in place; without any op named: all of them that are not slower than PyTorch's.

    layernorm, gelu, attention, loss, adamw take a variant of `stepscope train --list-variants`, several joined by "+"
    ("warp_per_row+separate_columns"), True for the defaults, False for PyTorch's, or a kernel made by stepscope.op. Slots by their own name
    (attention_backward="flash") override. adamw needs `optimizer`. Raises Refused for what does not stand alone.

    compiled: whether the model runs under torch.compile, where PyTorch's ops are Inductor's: without any op named, those stay that it
    fuses better. None: whether torch.compile(model) or model.compile() was called before; say True where it comes after.

    Returns a Report; print it: what is not replaced stands in it with the reason."""
    if not isinstance(model, nn.Module):
        raise Refused(f"replace() takes a torch.nn.Module, not {type(model).__name__}")
    compiled = _is_compiled(model) if compiled is None else compiled
    model = inside_compiled(model)
    if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
        raise Refused(f"{type(model).__name__} is TorchScript or holds some, whose ops cannot be replaced; give replace() the module before "
                      "torch.jit.script or torch.jit.trace")
    _refuse_replaced(model)
    refuse_unknown(asked)
    by_default = not any(v is not None and v is not False for v in asked.values())
    left = _left_by_default(compiled) if by_default else {}
    if by_default:
        left = {op: why for op, why in left.items() if asked.get(op) is not False}
        asked = {op: True for op in OPS if (op != "adamw" or optimizer is not None) and op not in left and asked.get(op) is not False}
    chosen = choose(asked)
    report = Report(model, chosen)
    for op, why in left.items():
        _leave(report, model, op, why)
    try:
        _replace_all(report, model, optimizer, chosen)
    except BaseException:  # no memory, ctrl-C: nobody would have a report to undo what was replaced until then
        report.undo()
        raise
    report.notes += _what_runs_no_kernel(report)
    return report
