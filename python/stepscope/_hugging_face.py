"""GPT-2 of Hugging Face in replace(): its attention, which is a module that talks to a config, a cache and a register of masks, and its loss,
which is a function that the model holds. What is asked of them and the kernels have not is refused, not computed otherwise."""
import copy
import functools
import inspect
import math
import types
import weakref

import torch
import torch.nn.functional as F

from . import functional
from ._errors import Refused
from ._rebound import functional_calls, names_of
from ._swap import OWN_FORWARD, function_with, is_hugging_face, is_of_class, is_replaced, swap_class, why_no_kernel_for

# What transformers hands down to an attention that reads whole sequences from their beginning and needs none of it; the last line is what the
# loss is given. Anything else might change the answer of theirs: lengths of packed sequences, or a cache by a name of tomorrow.
_IGNORED_BY_ATTENTION = {"cache_position", "position_ids", "output_hidden_states", "return_dict",
                         "labels", "shift_labels", "num_items_in_batch", "ignore_index"}
_OURS = "stepscope"  # the attention implementation by name, in transformers' registers
_INSIDE_OFF = "run this inside `with report.off():`"


def _asked_for(what, do="Run this inside `with report.off():`"):
    return Refused(f"attention: {what} asked for; the replaced attention is causal self-attention over whole sequences. {do}")


def is_attention(module):
    """Whether it is GPT-2's, but for one with a forward that calls torch.nn.functional, which is followed as any forward is."""
    return is_of_class(module, "GPT2Attention") and "scaled_dot_product_attention" not in functional_calls(module)


def _is_of_transformers(function):
    """Whether a function and all that it wraps were written there: functools.wraps gives a stranger's the names of what it wraps."""
    while function is not None:
        if not getattr(function, "__globals__", {}).get("__name__", "").startswith("transformers."):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def _why_other_attention(name):
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


def _why_it_differs(module, dropping):
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
        return OWN_FORWARD
    if not _is_of_transformers(type(module).forward):
        return f"the forward of {type(module).__name__} is not transformers' own, so it may compute something else"
    if module.is_cross_attention:
        return "it attends to another sequence"
    if getattr(module, "pruned_heads", None):
        return "heads were pruned"
    return (_why_it_differs(module, dropping=True) or _why_other_attention(module.config._attn_implementation)
            or why_no_kernel_for(module))


def swap_attention(module, slots):
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
        differs = _why_it_differs(self, self.training)
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

    return swap_class(module, forward)


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
        if any("loss_function" in names_of(f.__code__) for f in methods if isinstance(f, types.FunctionType)):
            return True
    return False


def losses(model):
    """[(name, model)] of the models of Hugging Face in this one that compute a loss, the model itself among them."""
    return [(f"{name}.loss_function".lstrip("."), m) for name, m in model.named_modules()
            if is_hugging_face(m) and ("labels" in inspect.signature(m.forward).parameters or _calls_loss_function(m))]


def swap_loss(model, slots):
    """model.loss_function of Hugging Face's causal models: labels are shifted, ignored where there is none."""
    from transformers.loss.loss_utils import ForCausalLMLoss
    if model.loss_function is not ForCausalLMLoss:
        return "its loss_function is not the one of causal language models"
    if not _calls_loss_function(model):
        return "it computes its loss in another way than by its loss_function"
    why = why_no_kernel_for(model)
    if why:
        return why
    loss, had = _HuggingFaceLoss(function_with("loss", slots)), getattr(model, "_loss_function", None)

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
        if asked != self.attention and _why_other_attention(asked):
            raise Refused(f"attention: it was changed to {asked!r} after it was replaced; change it back, or {_INSIDE_OFF}")
        for i, block in enumerate(model.h):  # one that came later, or of a kind that nobody here knows
            if not is_replaced(block.attn):
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


def without_cache_and_mask(model):
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


def gpt2_models(model):
    """{name: names of its attentions} of what is in the model and asks its config for a cache and a mask: the innermost model of Hugging
    Face around an attention. Attentions outside of one are under None."""
    modules, found = dict(model.named_modules()), {}
    for name, module in modules.items():
        if is_attention(module):
            parts = name.split(".") if name else []
            around = (".".join(parts[:n]) for n in range(len(parts) - 1, -1, -1))
            found.setdefault(next((a for a in around if is_hugging_face(modules[a])), None), []).append(name)
    return modules, found


def left_attentions(modules, models):
    """{name: why} of Hugging Face's attentions that stay. A model without cache and mask has no use for one that stays, so all of them do."""
    why = {}
    for model, names in models.items():
        own = {name: reason for name in names if (reason := _why_not_attention(modules[name]))}
        why.update(own)
        if own and model is not None:
            first = next(iter(own))
            why.update({name: f"{first} of the same model is not replaced" for name in names if name not in own})
    return why
