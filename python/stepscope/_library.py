"""libstepscope_ops.so by ctypes: found, opened, its version compared, its codes turned into exceptions (python/native/stepscope_ops.h)."""
import ctypes
import functools
import json
import os
import pathlib

from ._errors import MachineError, Refused, StepscopeError

ABI = 2
NAME = "libstepscope_ops.so"

_P, _I64, _I, _S = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p
_D, _OUT = ctypes.c_double, ctypes.POINTER(ctypes.c_int64)
_FUNCTIONS = {
    "layernorm_forward": [_S, _I, _I] + [_P] * 7 + [_I64, _I64, _P],
    "layernorm_backward": [_S, _I, _I] + [_P] * 8 + [_I64, _I64, _P, _I64, _P],
    "layernorm_backward_scratch": [_S, _I, _I64, _I64, _OUT],
    "gelu_forward": [_I, _P, _P, _I64, _P],
    "gelu_backward": [_I, _P, _P, _P, _I64, _P],
    "cross_entropy_forward": [_S, _I, _P, _P, _P, _I64, _I64, _I64, _I64, _P, _I64, _P],
    "cross_entropy_backward": [_S, _I, _P, _P, _P, _I64, _I64, _I64, _I64, _P, _I64, _P],
    "cross_entropy_scratch": [_I64, _OUT],
    "cross_entropy_kept_sum_forward": [_I, _P, _P, _P, _P, _I64, _I64, _I64, _I64, _P, _I64, _P],
    "cross_entropy_kept_sum_backward": [_I, _P, _P, _P, _P, _P, _I64, _I64, _I64, _I64, _I64, _P, _I64, _P],
    "attention_forward": [_S, _I, _P, _P, _P, _I64, _I64, _I64, _I64, _P, _I64, _P],
    "attention_forward_scratch": [_S, _I, _I64, _I64, _I64, _I64, _OUT],
    "attention_backward": [_S, _I, _P, _P, _P, _P, _P, _I64, _I64, _I64, _I64, _P, _I64, _P],
    "attention_backward_scratch": [_S, _I, _I64, _I64, _I64, _I64, _OUT],
    "adamw_settings": [_P, _D, _D, _D, _D, _D, _I64],
    "adamw": [_S, _I, _P, _P, _P, _P, _P, _I64, _I64, _P, _P, _P],
}


def candidates():
    """Files that may be the library, the first that exists is taken: STEPSCOPE_OPS_LIBRARY alone if it is set, the installed package,
    the build folders of the checkout around this file, the newest first."""
    named = os.environ.get("STEPSCOPE_OPS_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    here = pathlib.Path(__file__).resolve().parent
    built = [f for f in here.parent.parent.glob(f"build/*/lib/{NAME}") if f.is_file()]
    return [here / "lib" / NAME] + sorted(built, key=lambda f: f.stat().st_mtime, reverse=True)


@functools.cache
def load():
    """The opened library. MachineError where there is none, it does not load, or it is of another version."""
    found = [f for f in candidates() if f.is_file()]
    if not found:
        looked = ", ".join(str(f) for f in candidates())
        installed = not (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").is_file()
        where = " in a checkout of stepscope, and install the package from there again (pip install ./python)" if installed else ""
        raise MachineError(
            f"{NAME} was not found (looked for {looked}). Build it (cmake --preset release && cmake --build build/release --target "
            f"stepscope_ops){where}, or name the file in STEPSCOPE_OPS_LIBRARY.")
    try:
        library = ctypes.CDLL(os.path.abspath(found[0]))  # a name without a folder would be looked for where the system has libraries
    except OSError as e:
        raise MachineError(f"{found[0]} does not load: {e}") from e
    try:
        _declare(library, found[0])
    except AttributeError as e:
        raise MachineError(f"{found[0]} is no {NAME}: {e}") from e
    return library


def _declare(library, file):
    library.stepscope_ops_abi.restype = ctypes.c_int
    version = library.stepscope_ops_abi()
    if version != ABI:
        raise MachineError(f"{file} has interface {version}, this package was written for {ABI}; build both from one checkout")
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, "stepscope_ops_" + name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    for name in ("last_error", "variants"):
        getattr(library, "stepscope_ops_" + name).restype = ctypes.c_char_p
    library.stepscope_ops_adamw_settings_bytes.restype = ctypes.c_int64


def why_missing():
    """Why the library cannot be used; None when it can."""
    try:
        load()
    except MachineError as e:
        return str(e)
    return None


def call(name, *arguments):
    """One function of the library; its refusal becomes an exception with its sentence."""
    library = load()
    code = getattr(library, "stepscope_ops_" + name)(*arguments)
    if code == 0:
        return
    sentence = library.stepscope_ops_last_error().decode()
    raise {2: Refused, 3: MachineError}.get(code, StepscopeError)(sentence)


def bytes_of(name, *arguments):
    """The answer of a scratch query."""
    out = ctypes.c_int64()
    call(name, *arguments, ctypes.byref(out))
    return out.value


def variants():
    """{"fp32" | "mixed": {slot: [names, the default first]}} as the library has them."""
    return json.loads(load().stepscope_ops_variants())


def adamw_settings(**settings):
    """Bytes of the settings of one step."""
    size = load().stepscope_ops_adamw_settings_bytes()
    buffer = ctypes.create_string_buffer(size)
    call("adamw_settings", buffer, settings["lr"], settings["beta1"], settings["beta2"], settings["eps"], settings["weight_decay"],
         settings["step"])
    return buffer.raw
