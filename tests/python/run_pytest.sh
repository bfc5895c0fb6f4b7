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
here=$(cd "$(dirname "$0")" && pwd)
shift 2
python=${STEPSCOPE_TEST_PYTHON:-python3}
# Relative names are of the folder that this was called from, and pytest runs in another one.
[[ $python != */* || $python == /* ]] || python=$PWD/$python
[[ ${STEPSCOPE_TEST_VENV:-/} == /* ]] || STEPSCOPE_TEST_VENV=$PWD/$STEPSCOPE_TEST_VENV
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
exec "$python" "$here/run_pytest.py" "$part" "$@"
