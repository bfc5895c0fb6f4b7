#!/usr/bin/env bash
# Runs every seeded bug of tests/ranks/bugs on the visible GPUs: tests/ranks/bugs/run_bugs.sh BUILD_DIR [CARRIER] [JOBS]
# (configure with -DSTEPSCOPE_BUGS=ON, build the target ranks_bugs). CARRIER: files (one GPU, the default), nccl or peer (two).
# A patch with a line "Needs: two GPUs" shows over nccl and peer alone, and is not asked over files.
# Exit 0: a test fails for every bug, and none for the unpatched program. 1: not so. 3: no GPU.
set -u
build=${1:?usage: run_bugs.sh BUILD_DIR [files|nccl|peer] [JOBS]} carrier=${2:-files} jobs=${3:-4}
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# What a wrong sum, a wrong slice or a race shows in; the other tests cost time alone.
filter="*GradientsInBf16*mixed_$carrier:*GatheredRows*mixed_$carrier:*TwoRanksDo*mixed_$carrier:*EveryWay*mixed_$carrier:*Stochastic*mixed_$carrier"
filter+=":*StatesComeBack*mixed_$carrier:*AnUpdateThatIsLeftOut*mixed_$carrier:AddParts*"
asked() { [ "$carrier" != files ] || ! grep -q '^Needs: two GPUs$' "$here/$1"-*.patch; }
run() { timeout 240 "$1" --gtest_filter="$filter" > "$out/$(basename "$1")" 2>&1; echo $? > "$out/$(basename "$1").code"; }
for program in "$build/bin/ranks_gpu_test" "$build"/bin/ranks_bug_*; do
  case "$program" in *ranks_bug_*) asked "${program##*_}" || continue ;; esac
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  run "$program" &
done
wait
missed=0
grep -qE '^\[ +(OK|FAILED) ' "$out/ranks_gpu_test" || { echo "no GPU"; exit 3; }  # all skipped
[ "$(cat "$out/ranks_gpu_test.code")" = 0 ] || { echo "the unpatched program fails"; tail -20 "$out/ranks_gpu_test"; missed=1; }
for patch in "$here"/*.patch; do
  number=$(basename "$patch" | grep -o '^[0-9]*')
  asked "$number" || { printf '%s\tnot asked: needs two GPUs\n' "$(basename "$patch" .patch)"; continue; }
  code=$(cat "$out/ranks_bug_$number.code" 2>/dev/null || echo missing)
  verdict=caught
  [ "$code" = 1 ] || { verdict="MISSED (exit $code)"; missed=1; }
  printf '%s\t%s\t%s\n' "$(basename "$patch" .patch)" "$verdict" "$(grep -c '^\[  FAILED  \].*ms)' "$out/ranks_bug_$number") tests fail"
done
exit $missed
