#!/usr/bin/env bash
# The tests of python/ by pytest. Exits 77 (skipped) with the reason where they cannot run.
#   run_pytest.sh SOURCE_DIR cpu|gpu
set -euo pipefail
source_dir=$1 part=$2
python=${STEPSCOPE_TEST_PYTHON:-python3}
for module in torch pytest; do
  if ! why=$("$python" -c "import $module" 2>&1); then
    echo "skipped: $python cannot import $module (${why##*$'\n'}); name another interpreter in STEPSCOPE_TEST_PYTHON"
    exit 77
  fi
done
if [[ $part == gpu ]] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "skipped: PyTorch sees no CUDA device"
  exit 77
fi
selected=$([[ $part == gpu ]] && echo gpu || echo 'not gpu')
cd "$source_dir/python"
exec "$python" -m pytest -q -p no:cacheprovider -m "$selected"
