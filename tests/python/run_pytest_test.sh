#!/usr/bin/env bash
# run_pytest.sh with made-up interpreters: run_pytest_test.sh SOURCE_DIR
set -euo pipefail
source_dir=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset STEPSCOPE_TEST_PYTHON STEPSCOPE_TEST_VENV STEPSCOPE_TEST_TORCH STEPSCOPE_TEST_TORCH_INDEX STEPSCOPE_TEST_PACKAGES
failed=0
# An interpreter without PyTorch. `-m venv DIR` makes another; its `pip install` writes down what it was asked for and gives PyTorch, without
# a GPU, where there is a file `can_install`; pytest ends with 5.
mkdir "$folder/without" "$folder/with"
echo 'raise ImportError("No module")' > "$folder/without/torch.py"
printf 'class cuda:\n    is_available = staticmethod(lambda: False)\n' > "$folder/with/torch.py"
# pytest ends with 5, or as an argument exit=CODE says; `meet` waits for as many others, so that runs one after another would not end.
cat > "$folder/with/pytest.py" <<'PYTEST'
import os, time

importer = os.getpid()

def main(arguments):
    print("pytest was given", *arguments, "in a fork" if os.getppid() == importer else "itself",
          "GPU hidden" if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else "GPU seen")
    wanted = dict(a.split("=") for a in arguments if "=" in a)
    if "meet" in wanted:
        open(os.path.join(os.environ["FOLDER"], f"met{os.getpid()}"), "w").close()
        end = time.monotonic() + 30
        while sum(f.startswith("met") for f in os.listdir(os.environ["FOLDER"])) < int(wanted["meet"]):
            if time.monotonic() > end:
                return 9
            time.sleep(0.01)
    if "kill" in wanted:
        os.kill(os.getpid(), 9)
    return int(wanted.get("exit", 5))
PYTEST
cat > "$folder/python" <<'PYTHON'
#!/usr/bin/env bash
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; touch "$3/pyvenv.cfg"; cp "$0" "$3/bin/python" ;;
  "-m pip install "*)
    echo "${*:4}" >> "$FOLDER/asked"
    [[ -e $FOLDER/can_install ]] || exit 1
    touch "$(dirname "$0")/has_torch" ;;
  *)
    modules=$FOLDER/without
    [[ ! -e $(dirname "$0")/has_torch ]] || modules=$FOLDER/with
    PYTHONPATH=$modules PYTHONDONTWRITEBYTECODE=1 exec python3 "$@" ;;
esac
PYTHON
chmod +x "$folder/python"
export FOLDER=$folder STEPSCOPE_TEST_PYTHON=$folder/python
expect() {  # what, exit code, a text of its output, variables…
  local what=$1 code=$2 text=$3 found=0
  shift 3
  local out
  out=$(env "$@" "$source_dir/tests/python/run_pytest.sh" "$source_dir" cpu 2>&1) || found=$?
  if [[ $found != "$code" || $out != *"$text"* ]]; then
    echo "$what: exit $found instead of $code, or without '$text': $out"
    failed=1
  fi
}
expect "without PyTorch" 77 "cannot import torch" NONE=
expect "an installation that fails is no skip" 1 "" STEPSCOPE_TEST_VENV="$folder/venv"
touch "$folder/can_install"
: > "$folder/asked"
expect "half an installation is made anew, and pytest's answer is the answer" 5 "" STEPSCOPE_TEST_VENV="$folder/venv" \
  STEPSCOPE_TEST_TORCH=2.6.0 STEPSCOPE_TEST_PACKAGES="transformers"
grep -qx -- "--quiet --index-url https://download.pytorch.org/whl/cpu torch==2.6.0" "$folder/asked" || { echo "asked for: $(cat "$folder/asked")"; failed=1; }
grep -qx -- "--quiet numpy pytest transformers" "$folder/asked" || { echo "asked for: $(cat "$folder/asked")"; failed=1; }
: > "$folder/asked"
expect "what is there is not installed again" 5 "" STEPSCOPE_TEST_VENV="$folder/venv" STEPSCOPE_TEST_TORCH=2.6.0 STEPSCOPE_TEST_PACKAGES="transformers"
[[ ! -s $folder/asked ]] || { echo "installed again: $(cat "$folder/asked")"; failed=1; }
expect "another version is not taken for the one that is there" 5 "" STEPSCOPE_TEST_VENV="$folder/venv" STEPSCOPE_TEST_TORCH=2.11.0
grep -q "torch==2.11.0" "$folder/asked" || { echo "asked for: $(cat "$folder/asked")"; failed=1; }
given=$(STEPSCOPE_TEST_VENV="$folder/venv" STEPSCOPE_TEST_TORCH=2.11.0 "$source_dir/tests/python/run_pytest.sh" "$source_dir" cpu tests/test_page.py 2>&1) || true
[[ $given == *"-m not gpu tests/test_page.py itself GPU hidden" ]] || { echo "files that were named do not reach pytest: $given"; failed=1; }
given=$(STEPSCOPE_TEST_VENV="$folder/venv" STEPSCOPE_TEST_TORCH=2.11.0 "$source_dir/tests/python/run_pytest.sh" "$source_dir" gpu 2>&1) && found=0 || found=$?
[[ $found == 77 && $given == *"PyTorch sees no CUDA device"* ]] || { echo "tests of a GPU without one: exit $found: $given"; failed=1; }
# Names that are relative to the folder of the call, which is not the one where pytest runs.
ln -s "$source_dir" "$folder/source"
relative() {  # what, variables…
  local what=$1 found=0
  shift
  given=$(cd "$folder" && env "$@" source/tests/python/run_pytest.sh source cpu 2>&1) || found=$?
  [[ $found == 5 && $given == *"pytest was given "*" -m not gpu itself GPU hidden" ]] || { echo "$what: exit $found: $given"; failed=1; }
}
relative "a relative environment" STEPSCOPE_TEST_VENV=venv STEPSCOPE_TEST_TORCH=2.11.0
relative "a relative interpreter" STEPSCOPE_TEST_PYTHON=venv/bin/python
# Several runs: beside each other, all are heard, and the first failure is the answer.
runs() { # exit code, arguments…
  local code=$1 found=0
  shift
  rm -f "$folder"/met*
  given=$(STEPSCOPE_TEST_VENV="$folder/venv" STEPSCOPE_TEST_TORCH=2.11.0 "$source_dir/tests/python/run_pytest.sh" "$source_dir" cpu "$@" 2>&1) || found=$?
  [[ $found == "$code" ]] || { echo "runs $*: exit $found instead of $code: $given"; failed=1; }
}
runs 0 one meet=3 exit=0 + two meet=3 exit=0 + three meet=3 exit=0
[[ $(grep -c "pytest was given .*not gpu" <<< "$given") == 3 && $(grep -c "in a fork" <<< "$given") == 2 ]] || { echo "not the first and two forks: $given"; failed=1; }
runs 4 one exit=0 + two exit=4 + three exit=1
[[ $given == *"pytest one exit=0"*"exit 0"*"pytest two exit=4"*"exit 4"*"pytest three exit=1"*"exit 1"* ]] || { echo "not what each said: $given"; failed=1; }
runs 1 one exit=0 + two kill=1
mkdir "$folder/mine"
touch "$folder/mine/file"
expect "a folder of something else is left alone" 1 "no virtual environment" STEPSCOPE_TEST_VENV="$folder/mine"
[[ -e $folder/mine/file ]] || { echo "a folder that is no virtual environment was emptied"; failed=1; }
expect "from PyPI" 5 "" STEPSCOPE_TEST_VENV="$folder/other" STEPSCOPE_TEST_TORCH_INDEX=
grep -qx -- "--quiet torch" "$folder/asked" || { echo "asked for: $(cat "$folder/asked")"; failed=1; }
exit $failed
