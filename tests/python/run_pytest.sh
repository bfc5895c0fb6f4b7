#!/usr/bin/env bash
# The tests of python/ by pytest. Exits 77 (skipped) with the reason where they cannot run.
#   run_pytest.sh SOURCE_DIR cpu|gpu [ARGUMENTS OF PYTEST… [+ ARGUMENTS…]…]    files or --ignore=FILE, below python/
#                                    + begins another run of pytest, beside the others in a fork; the exit code is that of the first run that failed
#   STEPSCOPE_TEST_PYTHON=FILE       another interpreter than python3
#   STEPSCOPE_TEST_VENV=DIR          makes a virtual environment there, unless there is one, and installs PyTorch for CPUs and pytest into it.
#                                    Who asks for that gets a failure, not a skip, where it cannot be had
#   STEPSCOPE_TEST_TORCH=2.6.0       that version of PyTorch (default: the newest); STEPSCOPE_TEST_TORCH_INDEX=URL: from there; "": from PyPI
#   STEPSCOPE_TEST_PACKAGES="A B"    and these packages (transformers, lightning-thunder), whose tests are skipped without them
set -euo pipefail
source_dir=$1 part=$2
shift 2
python=${STEPSCOPE_TEST_PYTHON:-python3}
if [[ -n ${STEPSCOPE_TEST_VENV:-} ]]; then
  index=${STEPSCOPE_TEST_TORCH_INDEX-https://download.pytorch.org/whl/cpu}
  wanted="torch${STEPSCOPE_TEST_TORCH:+==$STEPSCOPE_TEST_TORCH} numpy pytest ${STEPSCOPE_TEST_PACKAGES:-}"
  # Several of these run beside each other: the first one installs.
  mkdir -p "$(dirname "$STEPSCOPE_TEST_VENV")"
  exec 9> "$STEPSCOPE_TEST_VENV.lock"
  flock 9
  # Another mark, or none, is of another request or of a run that was stopped while it installed.
  if [[ $(cat "$STEPSCOPE_TEST_VENV/installed" 2>&1) != "$wanted" ]]; then
    if [[ -e $STEPSCOPE_TEST_VENV && ! -e $STEPSCOPE_TEST_VENV/pyvenv.cfg ]]; then
      echo "STEPSCOPE_TEST_VENV=$STEPSCOPE_TEST_VENV: there already, and no virtual environment; expected a folder to make" >&2
      exit 1
    fi
    rm -rf "$STEPSCOPE_TEST_VENV"
    "$python" -m venv "$STEPSCOPE_TEST_VENV" || exit 1
    install=("$STEPSCOPE_TEST_VENV/bin/python" -m pip install --quiet)
    "${install[@]}" ${index:+--index-url "$index"} "${wanted%% *}" || exit 1
    # shellcheck disable=SC2086  # a list of names
    "${install[@]}" ${wanted#* } || exit 1
    echo "$wanted" > "$STEPSCOPE_TEST_VENV/installed"
  fi
  exec 9>&-
  python=$STEPSCOPE_TEST_VENV/bin/python
fi
cd "$source_dir/python"
# Inductor starts a process for each core, and each of them imports PyTorch; the tests compile a few small functions.
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-1}
# It also compiles four programs that try vector instructions, and a header of 130 MB which pays from the sixth kernel on; the tests have two.
export TORCHINDUCTOR_VEC_ISA_OK=${TORCHINDUCTOR_VEC_ISA_OK:-0}
export TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS=${TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS:-0}
# These tests need no GPU, and where there is one, importing Inductor begins a CUDA context, which does not outlive a fork.
[ "$part" != cpu ] || export CUDA_VISIBLE_DEVICES=
# One process asks, and other runs of pytest than the first are forks of it: to import PyTorch and Inductor takes 10 s of an idle processor, more than most tests.
exec "$python" -c '
import importlib, os, sys, tempfile

part, *arguments = sys.argv[1:]
asked = os.environ.get("STEPSCOPE_TEST_VENV")
for name in ("torch", "pytest"):
    try:
        importlib.import_module(name)
    except Exception as why:
        if asked:
            sys.exit(f"{sys.executable} was installed and cannot import {name}: {why}")
        print(f"skipped: {sys.executable} cannot import {name} ({why}); name another interpreter in STEPSCOPE_TEST_PYTHON, or a folder to "
              "install PyTorch into in STEPSCOPE_TEST_VENV")
        sys.exit(77)
import pytest
import torch

if part == "gpu" and not torch.cuda.is_available():
    print("skipped: PyTorch sees no CUDA device")
    sys.exit(77)
runs = [[]]
for argument in arguments:
    if argument == "+":
        runs.append([])
    else:
        runs[-1].append(argument)


def tests(arguments):
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "gpu" if part == "gpu" else "not gpu", *arguments]))


if len(runs) == 1:
    sys.exit(tests(runs[0]))
if part == "gpu":
    sys.exit("run_pytest.sh: runs beside each other are for the cpu: a CUDA context does not outlive a fork")
try:  # nothing is lost where another PyTorch has no such module
    importlib.import_module("torch._inductor.compile_fx")
except ImportError:
    pass
forks = []
for run in runs[1:]:
    said = tempfile.TemporaryFile()
    sys.stdout.flush()
    fork = os.fork()
    if fork == 0:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        code = 1
        try:
            code = tests(run)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # what the parent has to do at its end is not for its forks
    forks.append((fork, said, run))
# Importing Inductor may also begin threads of NVRTC, without which a fork cannot compile CUDA source; the first run can.
print("pytest", *runs[0], flush=True)
failed = tests(runs[0])
print(f"exit {failed}", flush=True)
for fork, said, run in forks:
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    said.seek(0)
    print("pytest", *run, flush=True)
    sys.stdout.buffer.write(said.read())
    print(f"exit {code}", flush=True)
    failed = failed or code
sys.exit(1 if failed < 0 else failed)
' "$part" "$@"
