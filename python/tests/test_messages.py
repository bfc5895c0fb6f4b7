"""What a stranger meets first: a machine without a device or a library, and arguments of another kind. Each is an exception with a sentence,
raised where the mistake is."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
import torch
import torch.nn.functional as F

import stepscope
from stepscope import _library
from stepscope.models import GPT, GPTConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]

# In a process of its own, where no test put kernels on the CPU.
ON_A_CPU = """
import sys, torch, stepscope
from stepscope.models import GPT, GPTConfig

def told(call):
    try:
        call()
    except stepscope.StepscopeError as e:
        print(f"{type(e).__name__}: {e}")

S, x, w = stepscope.functional, torch.randn(4, 8), torch.ones(8)
model = GPT(GPTConfig(vocab_size=67, block_size=16, n_layer=1, n_head=2, n_embd=32))
batch = torch.randint(67, (2, 16)), torch.randint(67, (2, 16))
print(stepscope.replace(model, layernorm=True))
print("torch._dynamo imported:", "torch._dynamo" in sys.modules)
told(lambda: model(*batch))
told(lambda: stepscope.check(model, batch))
told(lambda: S.layer_norm(x, (8,), w))
told(lambda: S.gelu(x))
told(lambda: S.cross_entropy(x, torch.arange(4)))
told(lambda: S.cross_entropy(x, torch.arange(4), classifier="one_read"))
told(lambda: S.attention(torch.randn(1, 4, 24), 2))
told(lambda: S.scaled_dot_product_attention(*torch.randn(3, 1, 2, 4, 4), is_causal=True))
told(lambda: stepscope.AdamW(model.parameters()))
told(lambda: stepscope.cuda_kernel("", "mine")((1,), (1,), []))
"""


def test_without_a_device_every_op_says_so():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *sys.path]), "STEPSCOPE_OPS_LIBRARY": "/nowhere/lib.so",
                   "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run([sys.executable, "-c", ON_A_CPU], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    # It takes a second, and PyTorch needs it for an optimizer or a compiled model only. Older versions of PyTorch were not tried.
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 15):
        assert "torch._dynamo imported: False" in ran.stdout
    assert "The model is on cpu; the kernels run on CUDA devices, so move it" in ran.stdout
    assert "No kernel can run yet: libstepscope_ops.so was not found (looked for /nowhere/lib.so)" in ran.stdout
    told = [line.split("the tensors")[0] for line in ran.stdout.splitlines() if line.startswith("Refused") and "run on CUDA devices" in line]
    assert told == ["Refused: layernorm: "] * 3 + ["Refused: gelu: "] + ["Refused: loss: "] * 2 + ["Refused: attention: "] * 2
    assert "Refused: adamw: its parameters are on cpu and the kernel runs on CUDA devices" in ran.stdout
    assert "MachineError: no CUDA device: mine cannot be launched here" in ran.stdout


def run(script, folder, *arguments, **variables):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables}
    return subprocess.run([sys.executable, "-c", script, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


def test_an_older_pytorch_is_named_at_the_import(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('__version__ = "2.5.1+cu124"')
    ran = run("import stepscope", tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT / "python")]))
    assert ran.returncode == 1 and "ImportError: stepscope for Python needs PyTorch 2.6 or newer, and 2.5.1+cu124 is installed" in ran.stderr


def test_an_installed_package_has_the_library_or_says_how_to_get_it_and_leaves_the_checkout_clean(tmp_path):
    if not importlib.util.find_spec("setuptools"):
        pytest.skip("setuptools is not installed")
    library, target = tmp_path / "libstepscope_ops.so", tmp_path / "installed"
    copy = target / "stepscope" / "lib" / library.name

    def install(library=library):
        return subprocess.run([sys.executable, "setup.py", "--quiet", "install_lib", "--install-dir", str(target)], capture_output=True,
                              text=True, timeout=300, cwd=ROOT / "python", env={**os.environ, "STEPSCOPE_OPS_LIBRARY": str(library)})

    assert f"STEPSCOPE_OPS_LIBRARY={library}: no such file; expected the absolute path of libstepscope_ops.so\n" in install().stderr
    assert (f"STEPSCOPE_OPS_LIBRARY=build/lib.so: no file {ROOT}/python/build/lib.so, seen from the folder where the package is built; "
            "expected the absolute path of libstepscope_ops.so\n") in install("build/lib.so").stderr
    library.write_text("no library")
    install()
    assert copy.read_text() == "no library"
    # Asked twice in one process, because the import of PyTorch takes seconds; why it was missing is not remembered.
    script = ("import os, sys, stepscope; print(stepscope.__file__); print(stepscope.why_missing()); os.remove(sys.argv[1]); "
              "print(stepscope.why_missing())")
    ran = run(script, tmp_path, str(copy), PYTHONPATH=os.pathsep.join([str(target), *sys.path[1:]]), STEPSCOPE_OPS_LIBRARY="")
    assert ran.returncode == 0, ran.stderr
    where, with_it, without = ran.stdout.splitlines()
    assert where.startswith(str(target))
    assert f"{copy} does not load" in with_it and "in a checkout of stepscope, and install the package from there again" in without
    assert not (ROOT / "python" / "build").exists() and not list((ROOT / "python").glob("*.egg-info"))


def test_a_wheel_with_the_library_is_of_this_platform_and_one_without_it_of_any(tmp_path):
    pytest.importorskip("setuptools.command.bdist_wheel", reason="setuptools 70.1, which makes wheels, is not installed")
    package = shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("tests", "tools", "measured", "native"))
    library = tmp_path / "libstepscope_ops.so"
    library.write_text("no library")

    def wheel_with(library):
        subprocess.run([sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", "made"], check=True, capture_output=True,
                       timeout=300, cwd=package, env={**os.environ, "STEPSCOPE_OPS_LIBRARY": library})
        (made,) = (package / "made").iterdir()
        with zipfile.ZipFile(made) as parts:
            names = parts.namelist()
        made.unlink()
        return made.name, "stepscope/lib/libstepscope_ops.so" in names

    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel_with(str(library)) == (f"stepscope-0.1.0-py3-none-{platform}.whl", True)
    assert wheel_with("") == ("stepscope-0.1.0-py3-none-any.whl", False)


def test_a_file_that_is_another_shared_library_is_named(monkeypatch):
    other = pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"
    monkeypatch.setenv("STEPSCOPE_OPS_LIBRARY", str(other))
    _library.load.cache_clear()
    try:
        why = stepscope.why_missing()
        assert why.startswith(f"{other} is no libstepscope_ops.so: ") and why.endswith("undefined symbol: stepscope_ops_abi")
    finally:
        _library.load.cache_clear()


def test_a_library_is_found_by_a_name_without_a_folder(monkeypatch, tmp_path):
    (tmp_path / "libother.so").symlink_to(pathlib.Path(torch.__file__).parent / "lib" / "libc10.so")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_OPS_LIBRARY", "./libother.so")
    _library.load.cache_clear()
    try:
        assert stepscope.why_missing().endswith("undefined symbol: stepscope_ops_abi"), "it was opened"
    finally:
        _library.load.cache_clear()


@pytest.mark.parametrize("number", [2**31, -2**31 - 1, 64 * 1024 * 50257])
def test_a_number_that_is_no_int_of_cpp_is_not_cut(number):
    from stepscope._nvrtc import _value
    with pytest.raises(stepscope.Refused, match=rf"a kernel was given {number}, which is no C\+\+ int; give ctypes.c_longlong"):
        _value(number)
    assert _value(2**31 - 1).value == 2**31 - 1 and _value(-2**31).value == -2**31 and _value(True).value is True


def own(kind, kernel, **settings):
    return stepscope.op(kind, device="cpu", **settings)(kernel)


def tanh(x):
    return F.gelu(x, approximate="tanh")


@pytest.mark.parametrize("asked, sentence", [
    (lambda tiny: stepscope.replace("gpt2"), "takes a torch.nn.Module, not str"),
    (lambda tiny: stepscope.replace(tiny, gelu=tanh), "gelu is given tanh, which no check has seen; make it with @stepscope.op.'gelu'"),
    (lambda tiny: stepscope.replace(tiny, layernorm=own("gelu", tanh)), "which is a kernel for gelu"),
    (lambda tiny: stepscope.replace(tiny, adamw=tanh), "adamw takes no kernel of its own"),
    (lambda tiny: stepscope.op(tanh), "needs the op in parentheses"),
    (lambda tiny: own("gelu", 3), "int cannot be called"),
    (lambda tiny: own("gelu", lambda x: None), "returned NoneType, expected a tensor"),
    (lambda tiny: own("attention", lambda q, k, v: None), "returned NoneType, expected a tensor"),
    (lambda tiny: own("attention", tanh, shapes=[(2, 3)]), "each .batch, tokens, heads, head size."),
    (lambda tiny: own("gelu", tanh, shapes=(2, 3)), "2 is no shape for a check"),
    (lambda tiny: own("loss", tanh, shapes=[(2, 0)]), r"\(2, 0\) is no shape"),
    (lambda tiny: own("gelu", tanh).bench(shape=7), "7 is no shape"),
    (lambda tiny: own("gelu", tanh, backward=lambda d, x: ()), "0 gradients for 1 floating"),
    (lambda tiny: own("gelu", tanh, backward=lambda d, x: d[0]), r"a gradient of shape \(3072,\) for a tensor of shape \(37, 3072\)"),
    (lambda tiny: own("gelu", tanh, backward=lambda d, x: 1.0), "returned float for a tensor"),
    (lambda tiny: own("attention", tanh, check=False)(*torch.randn(3, 2, 4, 4), is_causal=True), r"one shape \(batch, heads"),
    (lambda tiny: own("loss", tanh, check=False)(torch.randn(2, 3, 4), torch.zeros(2, 3)), r"for \(rows, classes\) and \(rows,\)"),
    (lambda tiny: stepscope.bench(tiny, None, report=None), "report is NoneType; give bench.. what replace"),
    (lambda tiny: stepscope.bench(tiny, None, report=stepscope.replace(GPT(GPTConfig(67, 16, 1, 2, 32)))), "the report is of another model .a GPT"),
])
def test_arguments_of_another_kind(tiny, asked, sentence):
    with pytest.raises(stepscope.Refused, match=sentence):
        asked(tiny)


@pytest.mark.parametrize("kernel, settings", [(lambda x: tanh(x.detach()), {}), (tanh, {"backward": lambda d, x: d * x})],
                         ids=["PyTorch's backward", "a backward of its own"])
def test_an_own_kernels_second_derivative_is_refused(kernel, settings):
    x = torch.randn(4, 12, requires_grad=True)
    gradient, = torch.autograd.grad(own("gelu", kernel, check=False, **settings)(x).sum(), x, create_graph=True)
    with pytest.raises(stepscope.Refused, match="a gradient of a gradient was asked for"):
        torch.autograd.grad((gradient**2).sum(), x)


def test_an_answer_of_another_type_is_refused():
    with pytest.raises(stepscope.CheckFailed, match="type float64, PyTorch's is float32"):
        own("gelu", lambda x: tanh(x.double()))


def test_an_optimizer_that_no_word_asked_for_is_listed(tiny):
    report = stepscope.replace(tiny, gelu=True, optimizer=torch.optim.AdamW(tiny.parameters()))
    assert [(s.name, s.why) for s in report.not_replaced] == [("optimizer", "ops were named and adamw was not; adamw=True replaces it")]


def test_nothing_is_noted_where_kernels_run(tiny):
    assert stepscope.replace(tiny).notes == []
