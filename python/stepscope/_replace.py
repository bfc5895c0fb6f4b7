"""Which parts of a model are which op, and how they are swapped: an instance gets a subclass of its class whose forward is ours, so
parameters, hooks, state_dict keys and deep copies stay; undo gives the class back.

A forward that calls torch.nn.functional by name (nanoGPT) is run again from the same code with another name for `F`, by which its globals have
a module in which the asked functions are ours and all others are PyTorch's."""
import contextlib
import copy
import dataclasses
import dis
import functools
import inspect
import itertools
import math
import sys
import types
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import _library, _ops, functional
from ._errors import Refused
from ._tables import table
from ._variants import LEFT_TO_INDUCTOR, OPS, choose, refuse_unknown

_FUNCTIONS = {"layer_norm": "layernorm", "gelu": "gelu", "scaled_dot_product_attention": "attention", "cross_entropy": "loss"}


@dataclasses.dataclass
class Site:
    """One place of the model. `why` is empty where it was replaced."""
    name: str
    what: str
    op: str
    variants: str = ""
    why: str = ""
    swap: object = None  # callable on -> None: to ours (True) and back (False)


class Report:
    """What replace() did. print() it. off() is PyTorch again for a while, undo() for good."""

    def __init__(self, model, chosen):
        self.model, self.chosen, self.sites, self.notes = model, chosen, [], []
        self.on = True

    @property
    def replaced(self):
        return [s for s in self.sites if not s.why]

    @property
    def not_replaced(self):
        return [s for s in self.sites if s.why]

    def undo(self):
        self._set(False)

    def redo(self):
        self._set(True)

    def _set(self, on):
        if on != self.on:
            if on:
                _refuse_replaced(self.model)
            done = []
            try:
                for site in self.replaced:
                    site.swap(on)
                    done.append(site)
            except BaseException:  # no memory, ctrl-C: half a model would be ours, and undo() would think that none is
                for site in done:
                    site.swap(not on)
                raise
            self.on = on

    @contextlib.contextmanager
    def off(self):
        """PyTorch's own ops inside the block."""
        before = self.on
        self._set(False)
        try:
            yield
        finally:
            self._set(before)

    def __str__(self):
        parts = []
        if self.replaced:
            parts.append(table(("replaced", "was", "op", "variants"), [(s.name or "(model)", s.what, s.op, s.variants) for s in self.replaced]))
        if self.not_replaced:
            parts.append(table(("not replaced", "is", "op", "why"), [(s.name or "(model)", s.what, s.op, s.why) for s in self.not_replaced]))
        return "\n\n".join(parts + self.notes) or "nothing in this model is one of the asked ops"


# ---- swaps -----------------------------------------------------------------------------------------------------------


def _swap_class(module, forward):
    """forward(self, *arguments) in place of the module's own. Deep copies keep it. A pickle has PyTorch's class, because no other process
    could find one that was made in this one."""
    was = type(module)

    def reduced(self, protocol):
        # Protocol 2 and later insist on the class of the object; 1 names the class to make as it is told.
        made, arguments, *rest = super(ours, self).__reduce_ex__(1)
        return made, tuple(was if a is ours else a for a in arguments), *rest

    def copied(self, memo):
        memo[id(self)] = twin = ours.__new__(ours)
        twin.__setstate__(copy.deepcopy(super(ours, self).__reduce_ex__(4)[2], memo))
        return twin

    own = {"forward": forward, "__module__": was.__module__, "_stepscope_was": was, "__reduce_ex__": reduced}
    if not hasattr(was, "__deepcopy__"):
        own["__deepcopy__"] = copied
    ours = type(was.__name__ if _is_hugging_face(module) else "Stepscope" + was.__name__, (was,), own)

    def swap(on):
        if type(module) is ours and not on:
            module.__class__ = was
        elif type(module) is was and on:
            module.__class__ = ours
        else:
            raise Refused(f"{type(module).__name__}: the class of this module was changed after it was replaced (by a parametrization, say); "
                          "take that back before the replacement")

    swap(True)
    return swap


def _variant_text(slots):
    if callable(slots):
        return "own kernel " + getattr(slots, "__name__", "?")
    return ", ".join(f"{k}={v or ('cudnn or flash, by type' if functional.has_cudnn() else 'flash')}" for k, v in slots.items())


def _function(op, slots):
    """The function that computes `op` with these variants, under the arguments of torch.nn.functional."""
    if callable(slots):
        return slots
    ours = {"layernorm": functional.layer_norm, "gelu": functional.gelu, "attention": functional.scaled_dot_product_attention,
            "loss": functional.cross_entropy}[op]

    # Not functools.partial: Dynamo (PyTorch 2.11) fails on the guards of one that it finds in a forward's globals.
    def bound(*arguments, **settings):
        return ours(*arguments, **settings, **slots)

    return bound


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
    function = _function("layernorm", slots)

    def forward(self, x):
        return function(x, self.normalized_shape, self.weight, self.bias, self.eps)

    return _swap_class(module, forward)


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
    function = _function("gelu", slots)

    def forward(self, x):
        return function(x, approximate="tanh")

    return _swap_class(module, forward)


# What transformers hands down to an attention that reads whole sequences from their beginning and needs none of it; the last line is what the
# loss is given. Anything else might change the answer of theirs: lengths of packed sequences, or a cache by a name of tomorrow.
_IGNORED_BY_ATTENTION = {"cache_position", "position_ids", "output_hidden_states", "return_dict",
                         "labels", "shift_labels", "num_items_in_batch", "ignore_index"}
_OURS = "stepscope"  # the attention implementation by name, in transformers' registers
_INSIDE_OFF = "run this inside `with report.off():`"


def _asked_for(what, do="Run this inside `with report.off():`"):
    return Refused(f"attention: {what} asked for; the replaced attention is causal self-attention over whole sequences. {do}")


def _is_of_class(module, name):
    """Whether transformers' class of that name is a module's, or a base of it."""
    return any(c.__name__ == name and c.__module__.startswith("transformers.") for c in type(module).__mro__)


def _is_of_transformers(function):
    """Whether a function and all that it wraps were written there: functools.wraps gives a stranger's the names of what it wraps."""
    while function is not None:
        if not getattr(function, "__globals__", {}).get("__name__", "").startswith("transformers."):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def _computes_other_attention(name):
    """Why config._attn_implementation names something else than causal attention; "" where it does not."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    if name is not None and name not in ("eager", "sdpa", "flex_attention") and not name.startswith("flash_attention_"):
        return f"its attention is {name!r}, which may compute something else; attn_implementation='sdpa' names PyTorch's"
    registered = ALL_ATTENTION_FUNCTIONS.get(name)
    if registered is not None and not _is_of_transformers(registered):
        return f"{name!r} was registered anew as an attention, which may compute something else than transformers' own"
    return ""


def _scaling(module):
    """Of the scores. Older versions of transformers compute it in every forward."""
    scaling = getattr(module, "scaling", None)
    if scaling is not None:
        return scaling
    scaling = module.head_dim**-0.5 if module.scale_attn_weights else 1.0
    return scaling / (module.layer_idx + 1) if module.scale_attn_by_inverse_layer_idx else scaling


def _differs(module, dropping):
    """Why the settings of a Hugging Face attention are none of the kernels'; "" where they are. They may change at any time."""
    scaling = _scaling(module)
    if not math.isclose(scaling, module.head_dim**-0.5):
        return f"its scores are scaled by {scaling}, the kernels scale by 1/sqrt(head size)"
    if dropping and module.attn_dropout.p:
        return f"it has dropout of {module.attn_dropout.p} on the scores; make the model with attn_pdrop=0"
    return "" if getattr(module, "is_causal", True) else "it is not causal"


def _why_not_attention(module):
    """Why a Hugging Face attention cannot be replaced; "" where it can."""
    if "forward" in vars(module):
        return _OWN_FORWARD
    if not _is_of_transformers(type(module).forward):
        return f"the forward of {type(module).__name__} is not transformers' own, so it may compute something else"
    if module.is_cross_attention:
        return "it attends to another sequence"
    if getattr(module, "pruned_heads", None):
        return "heads were pruned"
    return (_differs(module, dropping=True) or _computes_other_attention(module.config._attn_implementation)
            or _has_no_kernel_for(module))


def _hugging_face_attention(module, slots):
    # transformers 5.24 calls the second one `cache`; a third name would be among `others`.
    def forward(self, hidden_states, past_key_values=None, attention_mask=None, encoder_hidden_states=None, encoder_attention_mask=None,
                output_attentions=False, *, cache=None, use_cache=False, **others):
        unknown = [name for name, value in others.items() if value is not None and name not in _IGNORED_BY_ATTENTION]
        for what, given in (("a mask", attention_mask is not None), ("another sequence", encoder_hidden_states is not None),
                            ("the weights as output", bool(output_attentions)), (", ".join(unknown), unknown)):
            if given:
                raise _asked_for(f"{what} was")
        if past_key_values is not None or cache is not None or use_cache:
            raise _asked_for("a key-value cache was", f"Call the model with use_cache=False, or {_INSIDE_OFF}")
        differs = _differs(self, self.training)
        if differs:
            raise Refused(f"attention: {differs}. That was changed after it was replaced; change it back, or {_INSIDE_OFF}")
        qkv = self.c_attn(hidden_states)
        if callable(slots):
            B, T, _ = qkv.shape
            q, k, v = (t.view(B, T, self.num_heads, self.head_dim).transpose(1, 2) for t in qkv.split(self.split_size, dim=2))
            out = slots(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, self.embed_dim)
        else:
            out = functional.attention(qkv, self.num_heads, **slots)
        return self.resid_dropout(self.c_proj(out)), None

    return _swap_class(module, forward)


class _OfThisProcess:
    """What a replaced model of Hugging Face holds, and another process could not run."""

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise Refused("a replaced model of Hugging Face cannot be pickled; do it inside `with report.off():`, or save its state_dict()")


class _HuggingFaceLoss(_OfThisProcess):
    """ForCausalLMLoss of transformers with our cross entropy."""

    def __init__(self, cross_entropy):
        self.cross_entropy = cross_entropy

    def __call__(self, logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **kwargs):
        if shift_labels is None:
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        targets = shift_labels.reshape(-1).to(logits.device)
        mean = self.cross_entropy(logits.reshape(-1, vocab_size), targets, ignore_index=ignore_index)
        if num_items_in_batch is None:
            return mean
        # The kernels divide by the labels counted here. Where there is none, theirs is a sum of nothing, and ours 0/0.
        counted = (targets != ignore_index).sum()
        items = num_items_in_batch.to(mean.device) if isinstance(num_items_in_batch, torch.Tensor) else num_items_in_batch
        return torch.where(counted > 0, mean * counted / items, 0.0)


def _calls_loss_function(model):
    """Whether a method of the model's classes mentions it; some compute a loss in another way."""
    for kind in type(model).__mro__:
        if "loss_function" in vars(kind):
            return False
        methods = [inspect.unwrap(f) for f in vars(kind).values() if isinstance(f, types.FunctionType)]
        if any("loss_function" in _names_of(f.__code__) for f in methods if isinstance(f, types.FunctionType)):
            return True
    return False


def _losses(model):
    """[(name, model)] of the models of Hugging Face in this one that compute a loss, the model itself among them."""
    return [(f"{name}.loss_function".lstrip("."), m) for name, m in model.named_modules()
            if _is_hugging_face(m) and ("labels" in inspect.signature(m.forward).parameters or _calls_loss_function(m))]


def _hugging_face_loss(model, slots):
    """model.loss_function of Hugging Face's causal models: labels are shifted, ignored where there is none."""
    from transformers.loss.loss_utils import ForCausalLMLoss
    if model.loss_function is not ForCausalLMLoss:
        return "its loss_function is not the one of causal language models"
    if not _calls_loss_function(model):
        return "it computes its loss in another way than by its loss_function"
    why = _has_no_kernel_for(model)
    if why:
        return why
    loss, had = _HuggingFaceLoss(_function("loss", slots)), getattr(model, "_loss_function", None)

    def swap(on):
        if on:
            model._loss_function = loss
        elif had is not None:
            model._loss_function = had
        else:
            del model._loss_function

    swap(True)
    return swap


def _no_mask(*arguments, attention_mask=None, **kwargs):
    """The mask of the replaced attention: none. Returned, a user's would reach a part that was not replaced as it is, without causality."""
    if attention_mask is not None:
        if torch.compiler.is_compiling():
            raise Refused("attention: a mask was asked for in a compiled program, which does not know whether it hides anything. Leave "
                          f"attention_mask out if it does not; else {_INSIDE_OFF}")
        if not bool(attention_mask.all()):
            raise _asked_for("a mask was")
    return None


def _not_replaced(*arguments, **settings):
    raise Refused("attention: this module was not replaced, and has the config of a model that was, with settings that only the replaced "
                  "attention knows. Make the model from copy.deepcopy(config), or give it to replace() as well")


def _refuse_packed(position_ids):
    if bool((position_ids.diff(dim=-1) != 1).any()):
        raise Refused("attention: the given position_ids begin anew within a row, so that it holds several sequences and none may see another; "
                      "the replaced attention is causal self-attention over whole rows. Run this inside `with report.off():`")


class _WholeRows(_OfThisProcess):
    """A hook before the forward of Hugging Face's GPT-2. Where neither a mask nor a cache is given, transformers takes positions that begin anew
    for packed sequences, and makes a mask of them. The mask's function cannot tell (_no_mask): while it is compiled it is called for such a
    mask whatever the positions are. And transformers 5.24 keeps output_attentions from the attention, whose implementation a user may change."""

    def __init__(self, model):
        self.refuse_packed = torch.compiler.disable(_refuse_packed)  # here, not at the import: it imports Dynamo, which takes a second
        self.names, self.attention = list(inspect.signature(model.forward).parameters), model.config._stepscope_asked

    def __call__(self, model, arguments, named):
        if not hasattr(model.config, "_stepscope_asked"):
            raise Refused(f"attention: the model was given another config after it was replaced; undo() and replace() again, or {_INSIDE_OFF}")
        given = dict(zip(self.names, arguments))
        given.update(named)
        position_ids, weights = given.get("position_ids"), given.get("output_attentions")
        if model.config.output_attentions if weights is None else weights:
            raise _asked_for("the weights as output (output_attentions) were")
        asked = model.config._stepscope_asked
        if asked != self.attention and _computes_other_attention(asked):
            raise Refused(f"attention: it was changed to {asked!r} after it was replaced; change it back, or {_INSIDE_OFF}")
        for i, block in enumerate(model.h):  # one that came later, or of a kind that nobody here knows
            if not hasattr(type(block.attn), "_stepscope_was"):
                raise Refused(f"attention: h.{i}.attn is not replaced, and would run without the mask that the others do not need; "
                              f"undo() and replace() again, attention=False leaves all to PyTorch, or {_INSIDE_OFF}")
        if position_ids is not None and given.get("attention_mask") is None:
            self.refuse_packed(position_ids)


def _setting(name, ours):
    """A property that is `ours`, whatever the object holds; what a user sets is kept for the undo."""

    def get(self):
        return ours

    def keep(self, given):
        if given != _OURS:
            vars(self)[name] = given

    return property(get, keep)


@functools.lru_cache(maxsize=None)
def _config_class(kind):
    def copied(self, memo):
        twin = memo.get(id(self._holder()))
        plain = copy.deepcopy(self._plain, memo)
        return plain if twin is None else _our_config(plain, twin)

    # The name is that of the class, by which transformers finds the model of a config.
    return type(kind.__name__, (kind,), {
        "__new__": lambda cls, *arguments, **settings: kind(*arguments, **settings),  # from_dict and the like of this class make plain ones
        "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ("_plain", "_holder"), "__deepcopy__": copied,
        "__reduce_ex__": lambda self, protocol: (copy.copy, (self._plain,)),
        "_stepscope_asked": property(lambda self: self.__dict__.get("_attn_implementation_internal")),
        "use_cache": _setting("use_cache", False), "_attn_implementation_internal": _setting("_attn_implementation_internal", _OURS)})


def _our_config(config, holder):
    """The config of a replaced model: no cache, no mask. Other models may share the one it had, so that stays as it is; what is set in either
    is set in both, because both have one __dict__. Only deep copies of the whole model keep it."""
    kind = _config_class(type(config))
    ours = object.__new__(kind)
    object.__setattr__(ours, "__dict__", vars(config))
    object.__setattr__(ours, "_plain", config)
    object.__setattr__(ours, "_holder", weakref.ref(holder))
    return ours


def _without_cache_and_mask(model):
    """Hugging Face's GPT-2 keeps keys and values of every forward unless its config says no, and while it is compiled it makes a causal
    mask for every attention that it does not know to be causal by itself. Only the module that asks its config for both is given ours."""
    import transformers
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    ALL_ATTENTION_FUNCTIONS[_OURS] = _not_replaced
    masks = getattr(transformers, "AttentionMaskInterface", None)
    if masks is not None:
        masks.register(_OURS, _no_mask)
    hooks, had = [], getattr(model, "_attn_implementation", None)

    def swap(on):
        if on:
            model.config = _our_config(model.config, model)
            if masks is None:  # transformers 4.50 asks this, and for flash attention it makes no mask where a user gave none
                model._attn_implementation = "flash_attention_2"
            hooks.append(model.register_forward_pre_hook(_WholeRows(model), with_kwargs=True))
        else:
            model.config = getattr(model.config, "_plain", model.config)  # a user may have given it another
            if masks is None:
                model._attn_implementation = had
            hooks.pop().remove()

    swap(True)
    return swap


def _gpt2_models(model):
    """{name: names of its attentions} of what is in the model and asks its config for a cache and a mask: the innermost model of Hugging
    Face around an attention. Attentions outside of one are under None."""
    modules, found = dict(model.named_modules()), {}
    for name, module in modules.items():
        if _kind_of(module)[1] is _hugging_face_attention:
            parts = name.split(".") if name else []
            around = (".".join(parts[:n]) for n in range(len(parts) - 1, -1, -1))
            found.setdefault(next((a for a in around if _is_hugging_face(modules[a])), None), []).append(name)
    return modules, found


def _left_attentions(modules, models):
    """{name: why} of Hugging Face's attentions that stay. A model without cache and mask has no use for one that stays, so all of them do."""
    why = {}
    for model, names in models.items():
        own = {name: reason for name in names if (reason := _why_not_attention(modules[name]))}
        why.update(own)
        if own and model is not None:
            first = next(iter(own))
            why.update({name: f"{first} of the same model is not replaced" for name in names if name not in own})
    return why


# ---- forwards that call torch.nn.functional ---------------------------------------------------------------------------


def _names_of(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return names


def _globals_of(code):
    """Those of its names that it reads as globals, and not only as attributes."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals_of(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _functional_calls(module):
    """{name in torch.nn.functional: op} that this class's own forward mentions; a name that is its own part (self.gelu) is not one."""
    forward = getattr(type(module), "forward", None)
    if not isinstance(forward, types.FunctionType) or forward.__module__.startswith(("torch.", "transformers.")):
        return {}
    names = _names_of(forward.__code__)
    return {name: op for name, op in _FUNCTIONS.items() if name in names and not hasattr(module, name)}


_numbers = itertools.count()


def _stand_in(module, changed):
    """A module with the contents of `module` and some names changed, which bears a name of its own."""
    copy = types.ModuleType(f"stepscope._stand_in_{next(_numbers)}")
    copy.__dict__.update({k: v for k, v in module.__dict__.items() if k not in ("__name__", "__spec__", "__loader__")})
    copy.__dict__.update(changed)
    return copy


class _Rebound:
    """A forward that finds torch.nn.functional's names bound to `changed`: the same code with other names for those of its globals that lead
    there. All else it reads and writes where it did. `function` is None where it does not reach them through a global."""

    def __init__(self, forward, changed):
        self.globals, self.added, self.modules, self.function = forward.__globals__, {}, {}, None
        mentioned = _names_of(forward.__code__)
        found = {n: self._bound(self.globals[n], mentioned, changed) for n in sorted(_globals_of(forward.__code__)) if n in self.globals}
        names = {n: value for n, value in found.items() if value is not None}
        renamed = {n: f"_stepscope_{next(_numbers)}_{n}" for n in names}
        code = _renamed(forward.__code__, renamed) if names else None
        if code is None:
            return
        self.added = {renamed[n]: value for n, value in names.items()}
        self.function = types.FunctionType(code, self.globals, forward.__name__, forward.__defaults__, forward.__closure__)
        self.function.__kwdefaults__ = forward.__kwdefaults__
        # A copy of a replaced model has this function as well, and may outlive the report.
        weakref.finalize(self.function, _forget, self.globals, list(self.added), list(self.modules)).atexit = False

    def _bound(self, value, names, changed):
        if value is F:
            return self._module(F, changed)
        if any(value is getattr(F, f) for f in changed):
            return next(changed[f] for f in changed if value is getattr(F, f))
        if (value is torch or value is nn) and "functional" in names:
            functional = self._module(nn, {"functional": self._module(F, changed)})
            return functional if value is nn else self._module(torch, {"nn": functional})
        return None

    def _module(self, module, changed):
        made = _stand_in(module, changed)
        self.modules[made.__name__] = made
        return made

    def put(self, there):
        """Dynamo finds a module that a function's globals hold by the name that it bears, so it is importable by that."""
        if there:
            self.globals.update(self.added)
            sys.modules.update(self.modules)
        else:
            _forget(self.globals, self.added, self.modules)


def _forget(globals_, names, modules):
    for where, what in ((globals_, names), (sys.modules, modules)):
        for name in what:
            where.pop(name, None)


def _renamed(code, renamed):
    """The same code with other names for globals that it reads; None where that cannot be said in it. An entry of co_names may be a global and
    an attribute (torch.nn beside nn.Linear): the global gets an entry of its own then."""
    names, raw, consts, entries = list(code.co_names), bytearray(code.co_code), [], {}
    uses = [i for i in dis.get_instructions(code) if i.opcode in dis.hasname and i.argval in renamed]
    for i in uses:
        if i.opname != "LOAD_GLOBAL":
            if i.opname.endswith(("_GLOBAL", "_NAME", "_GLOBALS")) and i.opname != "IMPORT_NAME":
                return None  # it assigns the global, or reads it in the body of a class
            continue
        if i.argval not in entries:
            alone = all(u.opname == "LOAD_GLOBAL" for u in uses if u.argval == i.argval)
            entries[i.argval] = names.index(i.argval) if alone else len(names)
            names[entries[i.argval]:entries[i.argval] + 1] = [renamed[i.argval]]
        shift = 1 if sys.version_info >= (3, 11) else 0
        argument = entries[i.argval] << shift | (i.arg & shift)
        if argument >> 8 != i.arg >> 8:
            return None  # there is no room for another EXTENDED_ARG
        raw[i.offset + 1] = argument & 255
    for constant in code.co_consts:
        consts.append(_renamed(constant, renamed) if isinstance(constant, types.CodeType) else constant)
        if constant is not None and consts[-1] is None:
            return None
    return code.replace(co_names=tuple(names), co_code=bytes(raw), co_consts=tuple(consts))


def _gelu_by_form(slots):
    """F.gelu in either form: the tanh form is ours, the exact one stays PyTorch's."""
    ours = _function("gelu", slots)

    def gelu(input, approximate="none"):
        return ours(input, approximate="tanh") if approximate == "tanh" else F.gelu(input, approximate=approximate)

    return gelu


def _calls(module, calls, chosen):
    changed = {name: _gelu_by_form(chosen[op]) if op == "gelu" else _function(op, chosen[op]) for name, op in calls.items()}
    rebound = _Rebound(type(module).forward, changed)
    if rebound.function is None:
        return "its forward reaches the function in a way that was not followed; call stepscope.functional there"
    rebound.put(True)
    swap_class = _swap_class(module, rebound.function)
    ours, copies = type(module), weakref.WeakSet()

    def new(cls, *arguments, **settings):
        make = super(ours, cls).__new__
        made = make(cls) if make is object.__new__ else make(cls, *arguments, **settings)
        copies.add(made)
        return made

    ours.__new__ = new

    def swap(on):
        swap_class(on)
        if on or not copies:  # a copy stays replaced
            rebound.put(on)

    return swap


# ---- replace ----------------------------------------------------------------------------------------------------------


def _kind_of(module):
    """(op, how to swap) of a module that is an op as a whole."""
    name = type(module).__name__
    # A subclass that calls F.layer_norm in a forward of its own is followed as any forward is.
    if isinstance(module, nn.LayerNorm) and "layer_norm" not in _functional_calls(module):
        return "layernorm", _layernorm
    if isinstance(module, nn.GELU) or (name in ("NewGELU", "NewGELUActivation", "GELUTanh", "PytorchGELUTanh", "FastGELUActivation")
                                       and not list(module.parameters())):
        return "gelu", _gelu
    if _is_of_class(module, "GPT2Attention") and "scaled_dot_product_attention" not in _functional_calls(module):
        return "attention", _hugging_face_attention
    return None, None


def _is_hugging_face(model):
    return _is_of_class(model, "PreTrainedModel")


def _own_class(module):
    """The user's, of a module that may be replaced already."""
    return getattr(type(module), "_stepscope_was", type(module))


def _has_no_kernel_for(module):
    """Why, where none of its weights has a type of the kernels'; "" where there is a kernel."""
    types = [p.dtype for p in module.parameters() if p.is_floating_point()]
    if not types or torch.float32 in types or torch.bfloat16 in types:
        return ""
    return f"its weights are {str(types[0]).removeprefix('torch.')}, the kernels have float32 and bfloat16"


def _refuse_replaced(model):
    for name, module in model.named_modules():
        if hasattr(type(module), "_stepscope_was"):
            raise Refused(f"{name or 'the model'} is replaced already; call undo() of the report before. (A deep copy of a replaced model has "
                          "no report: undo first, then copy.)")


def _add(report, name, module, op, slots, result):
    site = Site(name, _own_class(module).__name__, op)
    if isinstance(result, str):
        site.why = result
    else:
        site.swap, site.variants = result, _variant_text(slots)
    report.sites.append(site)


# Accelerate and others put hooks there; the class's forward, which is what a replacement changes, may never run.
_OWN_FORWARD = "its forward was set on the instance (module.forward = …)"


def _replace_modules(report, model, chosen):
    modules, gpt2 = _gpt2_models(model) if "attention" in chosen else ({}, {})
    left = _left_attentions(modules, gpt2)
    no_gelu = _has_no_kernel_for(model).replace("its weights", "the model's weights")  # it has none of its own
    for name, module in model.named_modules():
        op, swap = _kind_of(module)
        if op in chosen:
            why = _OWN_FORWARD if "forward" in vars(module) else left.get(name) or (no_gelu if op == "gelu" else "")
            _add(report, name, module, op, chosen[op], why or swap(module, chosen[op]))
        elif op is None:
            calls = {f: o for f, o in _functional_calls(module).items() if o in chosen}
            if calls:
                result = _OWN_FORWARD if "forward" in vars(module) else _calls(module, calls, chosen)
                for i, o in enumerate(calls.values()):
                    _add(report, name, module, o, chosen[o], result if i == 0 or isinstance(result, str) else lambda on: None)
    for name, attentions in gpt2.items():
        if name is not None and not any(a in left for a in attentions):
            report.sites.append(Site(f"{name}.config".lstrip("."), "with cache and mask", "attention", "without",
                                     swap=_without_cache_and_mask(modules[name])))


def _replace_optimizer(report, model, optimizer, slots):
    from .optim import take_over
    if optimizer is None:
        report.sites.append(Site("", "optimizer", "adamw", why="no optimizer was given: replace(model, optimizer=…), or stepscope.AdamW"))
        return
    result = take_over(optimizer, model)
    _add(report, "optimizer", optimizer, "adamw", slots, result)


SLOWER = "slower than PyTorch's where the library has no cuDNN; attention='flash' replaces it all the same"


def _leave(report, model, op, why):
    """Lists the places of an op that replace(model) leaves to PyTorch."""
    for name, module in model.named_modules():
        if _kind_of(module)[0] == op or op in _functional_calls(module).values():
            report.sites.append(Site(name, type(module).__name__, op, why=why))
    if op == "loss":
        report.sites += [Site(name, type(m).__name__, op, why=why) for name, m in _losses(model)]


def _inside(model):
    """The module that torch.compile(model) wrapped, by the wrapper's name, because the import of torch._dynamo takes seconds."""
    return model._orig_mod if type(model).__name__ == "OptimizedModule" else model


def _is_compiled(model):
    """Whether torch.compile(model) or model.compile() was called."""
    return _inside(model) is not model or getattr(model, "_compiled_call_impl", None) is not None


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
    model = _inside(model)
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
    _replace_modules(report, model, {op: s for op, s in chosen.items() if op != "adamw"})
    if "loss" in chosen:
        for name, module in _losses(model):
            _add(report, name, module, "loss", chosen["loss"], _hugging_face_loss(module, chosen["loss"]))
    if "adamw" in chosen:
        _replace_optimizer(report, model, optimizer, chosen["adamw"])
    elif optimizer is not None:
        report.sites.append(Site("optimizer", type(optimizer).__name__, "adamw", why="ops were named and adamw was not; adamw=True replaces it"))
    for op in chosen:
        if not any(s.op == op for s in report.sites):
            report.sites.append(Site("", _own_class(model).__name__, op, why="no such op was recognized in this model"))
    report.notes += _what_runs_no_kernel(report)
    return report
