"""How an instance of a module becomes ours: it gets a subclass of its class whose forward is ours, so parameters, hooks, state_dict keys and
deep copies stay; and what the parts of replace() ask of a module."""
import copy

import torch

from . import functional
from ._errors import Refused

# Accelerate and others put hooks there; the class's forward, which is what a replacement changes, may never run.
OWN_FORWARD = "its forward was set on the instance (module.forward = …)"


def is_of_class(module, name):
    """Whether transformers' class of that name is a module's, or a base of it."""
    return any(c.__name__ == name and c.__module__.startswith("transformers.") for c in type(module).__mro__)


def is_hugging_face(model):
    return is_of_class(model, "PreTrainedModel")


def own_class(module):
    """The user's, of a module that may be replaced already."""
    return getattr(type(module), "_stepscope_was", type(module))


def is_replaced(module):
    return hasattr(type(module), "_stepscope_was")


def inside_compiled(model):
    """The module that torch.compile(model) wrapped, by the wrapper's name, because the import of torch._dynamo takes seconds."""
    return model._orig_mod if type(model).__name__ == "OptimizedModule" else model


def why_no_kernel_for(module):
    """Why, where none of its weights has a type of the kernels'; "" where there is a kernel."""
    types = [p.dtype for p in module.parameters() if p.is_floating_point()]
    if not types or torch.float32 in types or torch.bfloat16 in types:
        return ""
    return f"its weights are {str(types[0]).removeprefix('torch.')}, the kernels have float32 and bfloat16"


def swap_class(module, forward):
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
    ours = type(was.__name__ if is_hugging_face(module) else "Stepscope" + was.__name__, (was,), own)

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


def function_with(op, slots):
    """The function that computes `op` with these variants, under the arguments of torch.nn.functional."""
    if callable(slots):
        return slots
    ours = {"layernorm": functional.layer_norm, "gelu": functional.gelu, "attention": functional.scaled_dot_product_attention,
            "loss": functional.cross_entropy}[op]

    # Not functools.partial: Dynamo (PyTorch 2.11) fails on the guards of one that it finds in a forward's globals.
    def bound(*arguments, **settings):
        return ours(*arguments, **settings, **slots)

    return bound
