#!/usr/bin/env bash
# Runs the gate against every seeded kernel bug, on a GPU: tests/bugs/run_bugs.sh BUILD_DIR [SEED]
# (configure with -DSTEPSCOPE_BUGS=ON and build the target gate_bugs first).
# A patch whose check is "racecheck FILTER" runs under compute-sanitizer's racecheck for the kernels of that filter.
# Exit 0: each bug failed the gate by the check that its patch names, and the unpatched trainer passes. 1: not so. 3: no GPU.
set -u
build=${1:?usage: run_bugs.sh BUILD_DIR [SEED]}
seed=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# program -> output, exit code; 9 = racecheck found a hazard
run() {
  local wrap=() check
  check=$(sed -n 's/^Caught-by: racecheck //p' "$here/${1#gate_bug_}"-*.patch 2>/dev/null | head -1)
  if [ -n "$check" ]; then wrap=(compute-sanitizer --tool racecheck --kernel-name "$check" --error-exitcode 9); fi
  timeout 300 "${wrap[@]}" "$build/bin/$1" $seed > "$out/$1" 2> "$out/$1.err"
  echo $? > "$out/$1.code"
}
export -f run

# Four at a time: the oracle's half of a gate runs on the CPU, the GPU is mostly idle. Output in $out/NAME, exit code in $out/NAME.code.
export build seed out here OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
{ echo gate_unpatched_fp32; echo gate_unpatched_mixed; for patch in "$here"/*.patch; do name=$(basename "$patch"); echo "gate_bug_${name%%-*}"; done; } |
  xargs -P "${STEPSCOPE_BUG_JOBS:-4}" -I{} bash -c 'run {}'

if [ "$(cat "$out/gate_unpatched_fp32.code")" -eq 3 ]; then cat "$out/gate_unpatched_fp32.err" >&2; exit 3; fi
printf '%-4s %-34s %-46s %s\n' bug name "check that must fail" result
good=1
for trainer in fp32 mixed; do
  code=$(cat "$out/gate_unpatched_$trainer.code")
  if [ "$code" -eq 0 ]; then
    printf '%-4s %-34s %-46s %s\n' - "no bug ($trainer)" "none" "passed"
  else
    printf '%-4s %-34s %-46s %s\n' - "no bug ($trainer)" "none" "FAILED (exit $code)"
    grep '^failed:' "$out/gate_unpatched_$trainer" | head -5
    tail -3 "$out/gate_unpatched_$trainer.err"
    good=0
  fi
done
caught=0
total=0
for patch in "$here"/*.patch; do
  stem=$(basename "$patch" .patch)
  number=${stem%%-*}
  check=$(sed -n 's/^Caught-by: //p' "$patch" | head -1)
  total=$((total + 1))
  code=$(cat "$out/gate_bug_$number.code")
  if [ $code -eq 1 ] && grep -qF "failed: $check" "$out/gate_bug_$number"; then
    result="caught ($(grep -c '^failed:' "$out/gate_bug_$number") checks failed)"
    caught=$((caught + 1))
  elif [ $code -eq 9 ] && [ "${check%% *}" = racecheck ]; then
    result="caught ($(grep -o 'RACECHECK SUMMARY.*' "$out/gate_bug_$number" | head -1))"
    caught=$((caught + 1))
  elif [ $code -eq 1 ]; then
    result="MISSED by that check; failing: $(grep '^failed:' "$out/gate_bug_$number" | head -1)"
  else
    result="MISSED (exit $code) $(tail -1 "$out/gate_bug_$number.err")"
  fi
  printf '%-4s %-34s %-46s %s\n' "$number" "${stem#*-}" "$check" "$result"
done
echo "caught $caught/$total"
[ $good -eq 1 ] && [ $total -ge 12 ] && [ $caught -eq $total ]
