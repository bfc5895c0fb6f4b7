"""A forward that calls torch.nn.functional by name (nanoGPT) is run again from the same code with another name for `F`, by which its globals
have a module in which the asked functions are ours and all others are PyTorch's."""
import dis
import itertools
import sys
import types
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F

_OPS = {"layer_norm": "layernorm", "gelu": "gelu", "scaled_dot_product_attention": "attention", "cross_entropy": "loss"}


def names_of(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_of(constant)
    return names


def _globals_of(code):
    """Those of its names that it reads as globals, and not only as attributes."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals_of(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def functional_calls(module):
    """{name in torch.nn.functional: op} that this class's own forward mentions; a name that is its own part (self.gelu) is not one."""
    forward = getattr(type(module), "forward", None)
    if not isinstance(forward, types.FunctionType) or forward.__module__.startswith(("torch.", "transformers.")):
        return {}
    names = names_of(forward.__code__)
    return {name: op for name, op in _OPS.items() if name in names and not hasattr(module, name)}


_numbers = itertools.count()


def _stand_in(module, changed):
    """A module with the contents of `module` and some names changed, which bears a name of its own."""
    copy = types.ModuleType(f"stepscope._stand_in_{next(_numbers)}")
    copy.__dict__.update({k: v for k, v in module.__dict__.items() if k not in ("__name__", "__spec__", "__loader__")})
    copy.__dict__.update(changed)
    return copy


class Rebound:
    """A forward that finds torch.nn.functional's names bound to `changed`: the same code with other names for those of its globals that lead
    there. All else it reads and writes where it did. `function` is None where it does not reach them through a global."""

    def __init__(self, forward, changed):
        self.globals, self.added, self.modules, self.function = forward.__globals__, {}, {}, None
        mentioned = names_of(forward.__code__)
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
