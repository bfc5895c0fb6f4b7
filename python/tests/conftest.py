import os
import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parent)]
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fake_kernels  # noqa: E402
import stepscope  # noqa: E402
from stepscope.models import GPT, GPTConfig  # noqa: E402

fake_kernels.install()
# The models are tiny, and threads that wait for each other on a busy machine take seconds a step.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def program():
    """The program stepscope: STEPSCOPE_TEST_PROGRAM, else the newest of the build folders."""
    named = os.environ.get("STEPSCOPE_TEST_PROGRAM")
    root = pathlib.Path(__file__).resolve().parents[2]
    built = [named] if named else sorted(map(str, root.glob("build/*/bin/stepscope")), key=lambda p: pathlib.Path(p).stat().st_mtime)
    if not built:
        pytest.skip("no build folder has the program stepscope; STEPSCOPE_TEST_PROGRAM names one")
    return built[-1]


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=67, block_size=16, n_layer=2, n_head=2, n_embd=32))


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    return torch.randint(67, (2, 16), generator=generator), torch.randint(67, (2, 16), generator=generator)


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    why = stepscope.why_missing()
    if why:
        pytest.skip(why)
    return torch.device("cuda")
