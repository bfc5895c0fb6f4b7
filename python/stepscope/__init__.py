"""stepscope in PyTorch: replace single ops of a model by stepscope's kernels (or your own), check them, time them, profile the step.

    report = stepscope.replace(model, layernorm="warp_per_row", gelu="kernel", loss="kept_sum", attention="cudnn")
    print(report)
    print(stepscope.check(model, batch))
    print(stepscope.bench(model, batch, report=report))
    with stepscope.profile("step"):
        ...

docs/python.md has the rest."""
try:
    import torch as _torch
except ImportError as e:
    raise ImportError("stepscope for Python needs PyTorch 2.6 or newer, which is not installed (pip install torch)") from e
if [int(part) for part in _torch.__version__.split(".")[:2]] < [2, 6]:
    raise ImportError(f"stepscope for Python needs PyTorch 2.6 or newer, and {_torch.__version__} is installed (pip install --upgrade torch)")

from . import functional
from ._bench import bench
from ._check import check
from ._errors import CheckFailed, MachineError, Refused, StepscopeError
from ._library import variants, why_missing
from ._nvrtc import cuda_kernel
from ._profile import prepare as _prepare
from ._profile import profile
from ._replace import Report, replace
from ._user_op import op
from .optim import AdamW

__all__ = ["AdamW", "CheckFailed", "MachineError", "Refused", "Report", "StepscopeError", "bench", "check", "cuda_kernel", "functional", "op",
           "profile", "replace", "variants", "why_missing"]

_prepare()


def __getattr__(name):
    # Lightning Thunder takes seconds to import, and most users have none.
    if name == "thunder":
        import importlib
        return importlib.import_module(".thunder", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
