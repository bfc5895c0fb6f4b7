#!/usr/bin/env bash
# Rebuilds the mutation score, on a GPU: tests/bugs/run_bugs.sh BUILD_DIR [SEED]
# (configure with -DSTEPSCOPE_BUGS=ON and build the targets gate_bugs and gate_test first).
# Every seeded kernel bug goes through the gate, and every cheating trainer of tests/gate/cheats_test.cpp; score.sh counts.
# A patch whose check is "racecheck FILTER" runs under compute-sanitizer's racecheck for the kernels of that filter.
# The score goes to BUILD_DIR/mutation-score.tsv too. With STEPSCOPE_BUG_RESULTS=FOLDER the outputs stay there, and what already ended
# there is not run again: a call that was cut short goes on where it was.
# Exit 0: everything was caught by the check that is named for it, and the unpatched trainers pass. 1: not so. 3: no GPU.
set -u
build=${1:?usage: run_bugs.sh BUILD_DIR [SEED]}
seed=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${STEPSCOPE_BUG_RESULTS:-}" ]; then
  out=$STEPSCOPE_BUG_RESULTS
  mkdir -p "$out"
else
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi

# program -> output, exit code; 9 = racecheck found a hazard
run() {
  local wrap=() check
  [ -s "$out/$1.code" ] && return
  check=$(sed -n 's/^Caught-by: racecheck //p' "$here/${1#gate_bug_}"-*.patch 2>/dev/null | head -1)
  if [ -n "$check" ]; then wrap=(compute-sanitizer --tool racecheck --kernel-name "$check" --error-exitcode 9); fi
  timeout 300 "${wrap[@]}" "$build/bin/$1" $seed > "$out/$1" 2> "$out/$1.err"
  echo $? > "$out/$1.code"
}
export -f run

# Four at a time: the oracle's half of a gate runs on the CPU, the GPU is mostly idle. Output in $out/NAME, exit code in $out/NAME.code.
export build seed out here OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# First, one at a time, those whose clocks are looked at: processes that share a GPU wait for each other.
alone="gate_unpatched_fp32 gate_unpatched_mixed"
for patch in "$here"/*.patch; do
  if grep -qE '^Caught-by: (clock|late work|timed steps)' "$patch"; then name=$(basename "$patch"); alone="$alone gate_bug_${name%%-*}"; fi
done
for program in $alone; do run "$program"; done
{ echo gate_unpatched_fp32; echo gate_unpatched_mixed; for patch in "$here"/*.patch; do name=$(basename "$patch"); echo "gate_bug_${name%%-*}"; done; } |
  xargs -P "${STEPSCOPE_BUG_JOBS:-4}" -I{} bash -c 'run {}'

if [ "$(cat "$out/gate_unpatched_fp32.code")" -eq 3 ]; then cat "$out/gate_unpatched_fp32.err" >&2; exit 3; fi
good=1
for trainer in fp32 mixed; do
  code=$(cat "$out/gate_unpatched_$trainer.code")
  if [ "$code" -eq 0 ]; then
    echo "no bug ($trainer): passed"
  else
    echo "no bug ($trainer): FAILED (exit $code)"
    grep '^failed:' "$out/gate_unpatched_$trainer" | head -5
    tail -3 "$out/gate_unpatched_$trainer.err"
    good=0
  fi
done
"$build/bin/gate_test" --gtest_filter='Cheats.each*' > "$out/cheats" 2>&1
"$here/score.sh" "$out" || good=0
cp "$out/score.tsv" "$build/mutation-score.tsv"
[ $good -eq 1 ]
