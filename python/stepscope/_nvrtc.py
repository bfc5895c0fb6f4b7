"""CUDA source to a kernel that takes PyTorch's tensors: NVRTC and the driver by ctypes, so that no compiler and no binding is needed."""
import ctypes
import glob
import os

import torch

from ._errors import MachineError, Refused


def _nvrtc():
    names = [os.environ.get("STEPSCOPE_NVRTC_LIBRARY"), *(f"libnvrtc.so.{v}" for v in ((torch.version.cuda or "").split(".")[0], 13, 12) if v)]
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    names += sorted(glob.glob(os.path.join(packages, "nvidia", "*", "lib", "libnvrtc.so.*")))
    for name in filter(None, names):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MachineError("libnvrtc was not found; it comes with the CUDA toolkit and with PyTorch's wheels (or name it in "
                       "STEPSCOPE_NVRTC_LIBRARY)")


def compile_source(source, options=(), architecture=None):
    """CUDA C++ to machine code for this device (or for `architecture`, "sm_90"). Refused with the compiler's log."""
    if architecture is None:
        if not torch.cuda.is_available():
            raise MachineError("no CUDA device: name an architecture to compile for, for example sm_90")
        major, minor = torch.cuda.get_device_capability()
        architecture = f"sm_{major}{minor}"
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None):
        raise MachineError("NVRTC made no program")
    flags = [f"--gpu-architecture={architecture}".encode(), b"-std=c++17", *(o.encode() for o in options)]
    code = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    size = ctypes.c_size_t()
    if code:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        raise Refused("the CUDA source does not compile:\n" + log.value.decode())
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw


class CudaKernel:
    """kernel(grid, block, arguments, shared_bytes=0): on the current stream. A tensor is passed as its address, an int as `int`, a float
    as `float`, a bool as `bool`; other types as a ctypes value (ctypes.c_longlong(n))."""

    def __init__(self, source, name, options=()):
        self.source, self.name, self.options = source, name, tuple(options)
        self._functions = {}

    def _function(self, device):
        if device not in self._functions:
            torch.cuda.current_stream()  # the context of the device exists from here on
            cuda = ctypes.CDLL("libcuda.so.1")
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            _checked(cuda, cuda.cuModuleLoadData(ctypes.byref(module), compile_source(self.source, self.options)), "loading the kernel")
            _checked(cuda, cuda.cuModuleGetFunction(ctypes.byref(function), module, self.name.encode()),
                     f"finding {self.name!r} (is it extern \"C\" __global__?)")
            self._functions[device] = (cuda, function)
        return self._functions[device]

    def __call__(self, grid, block, arguments, shared_bytes=0):
        if not torch.cuda.is_available():
            raise MachineError(f"no CUDA device: {self.name} cannot be launched here")
        cuda, function = self._function(torch.cuda.current_device())
        values = [_value(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        grid, block = ((*d, 1, 1)[:3] for d in (grid, block))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _checked(cuda, cuda.cuLaunchKernel(function, *grid, *block, shared_bytes, stream, pointers, None), f"launching {self.name}")


def _value(argument):
    if isinstance(argument, torch.Tensor):
        if not argument.is_cuda:
            raise Refused(f"a kernel was given a tensor on {argument.device}")
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int) and not -2**31 <= argument < 2**31:
        raise Refused(f"a kernel was given {argument}, which is no C++ int; give ctypes.c_longlong({argument}), and declare it long long")
    for kind, made in ((bool, ctypes.c_bool), (int, ctypes.c_int), (float, ctypes.c_float)):
        if isinstance(argument, kind):
            return made(argument)
    if isinstance(argument, ctypes._SimpleCData):
        return argument
    raise Refused(f"a kernel takes tensors, int, float, bool and ctypes values, not {type(argument).__name__}")


def _checked(cuda, code, doing):
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise MachineError(f"{doing}: CUDA error {code} ({(text.value or b'?').decode()})")


def cuda_kernel(source, name, options=()):
    """The kernel `name` of CUDA C++ source, compiled by NVRTC at its first launch. Declare it extern "C" __global__."""
    return CudaKernel(source, name, options)
