#!/usr/bin/env bash
# Rebuilds the mutation score, on a GPU:
#   tests/bugs/run_bugs.sh BUILD_DIR [SEED] [--only 101-140,7] [--class CLASS] [--jobs N] [--limit SECONDS] [--first] [--racecheck]
#                          [--out FOLDER] [--score FILE]
# (configure with -DSTEPSCOPE_BUGS=ON and build the targets gate_bugs and gate_test first; gate_bugs_unseen for the unseen ones alone).
# Every seeded bug goes through the gate, and every cheating trainer of tests/gate/cheats_test.cpp; score.sh counts.
# A patch whose check is "racecheck FILTER" runs under compute-sanitizer's racecheck for the kernels of that filter.
#   --only, --class  a part of them (selection.sh), and the unpatched trainer of each
#   --jobs           programs at a time: 4 unless STEPSCOPE_BUG_JOBS says otherwise
#   --limit          seconds that one program may take, 300; one that takes longer is missed
#   --first          a program ends at the first report with a failure, where its patch names "any" check: faster, the same score
#   --racecheck      what the gate let through runs again under racecheck, where its patch has a line "Racecheck: FILTER"
#   --out            outputs stay there, and what already ended there is not run again: a call that was cut short goes on where it was
#                    (as with STEPSCOPE_BUG_RESULTS=FOLDER)
#   --score          where the score goes, BUILD_DIR/mutation-score.tsv: device, driver, date and revision, one line per patch, totals
# Exit 0: everything was caught by the check that is named for it, and the unpatched trainers pass. 1: not so. 2: wrong flags. 3: no GPU.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/selection.sh"
usage="usage: run_bugs.sh BUILD_DIR [SEED] [--only NUMBERS] [--class CLASS] [--jobs N] [--limit SECONDS] [--first] [--racecheck] [--out FOLDER] [--score FILE]"
build= seed= jobs=${STEPSCOPE_BUG_JOBS:-4} limit=300 out=${STEPSCOPE_BUG_RESULTS:-} score= racecheck= first=
selection=()
while [ $# -gt 0 ]; do
  case "$1" in
    --only) take_only "${2:?$usage}"; selection+=(--only "$2"); shift ;;
    --class) take_class "${2:?$usage}"; selection+=(--class "$2"); shift ;;
    --jobs) jobs=${2:?$usage}; shift ;;
    --limit) limit=${2:?$usage}; shift ;;
    --out) out=${2:?$usage}; shift ;;
    --score) score=${2:?$usage}; shift ;;
    --racecheck) racecheck=1 ;;
    --first) first=first ;;
    -*) echo "run_bugs.sh: unknown option $1; $usage" >&2; exit 2 ;;
    *) if [ -z "$build" ]; then build=$1; elif [ -z "$seed" ]; then seed=$1; else echo "$usage" >&2; exit 2; fi ;;
  esac
  shift
done
[ -n "$build" ] || { echo "$usage" >&2; exit 2; }
[ -n "$score" ] || score=$build/mutation-score.tsv
# Made before everything runs: a seed for all, so that the score can be repeated.
[ -n "$seed" ] || seed=$((RANDOM * 32768 + RANDOM))
if [ -n "$out" ]; then
  mkdir -p "$out"
else
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi

# program, class of its row in the table (none: it is unpatched) -> output, exit code; 9 = racecheck found a hazard
run() {
  local wrap=() check patch op words=()
  # One that was ended by the limit gets another try.
  [ -s "$out/$1.code" ] && [ "$(cat "$out/$1.code")" != 124 ] && return
  patch=$(echo "$here/${1#gate_bug_}"-*.patch)
  check=$(sed -n 's/^Caught-by: //p' "$patch" 2>/dev/null | head -1)
  # The oracle runs host code of gpt2/ outside of its ops: such a bug is in its answers as well.
  if ! grep -q '^+++ b/gpt2/' "$patch" 2>/dev/null || grep -q '^+++ b/gpt2/ops/' "$patch"; then words+=("answers=$answers"); fi
  # Quicker where one of these ops shows the bug: it need not wait for the others.
  for op in $(sed -n 's/^Ops: //p' "$patch" 2>/dev/null); do words+=("op=$op"); done
  # No single op shows these.
  case "${2:-}" in steps | "late steps" | wiring) words+=(models-first) ;; esac
  case "$check" in
    any) [ -z "$first" ] || words+=(first) ;;
    "racecheck "*) wrap=(compute-sanitizer --tool racecheck --kernel-name "${check#racecheck }" --error-exitcode 9) ;;
  esac
  timeout "$limit" "${wrap[@]}" "$build/bin/$1" "$seed" ${words[@]+"${words[@]}"} > "$out/$1" 2> "$out/$1.err"
  echo $? > "$out/$1.code"
}
# program that passed -> the same under racecheck, for the kernels that its patch names
race() {
  local filter
  filter=$(sed -n 's/^Racecheck: //p' "$here/${1#gate_bug_}"-*.patch | head -1)
  [ -n "$filter" ] && [ "$(cat "$out/$1.code")" = 0 ] || return
  [ -s "$out/$1.race.code" ] && [ "$(cat "$out/$1.race.code")" != 124 ] && return
  timeout "$limit" compute-sanitizer --tool racecheck --kernel-name "$filter" --error-exitcode 9 "$build/bin/$1" "$seed" \
    > "$out/$1.race" 2> "$out/$1.race.err"
  echo $? > "$out/$1.race.code"
}
export -f run race

# Only programs of one build can read each other's answers, and this is the build.
answers=$out/answers-$(cat "$build"/bin/gate_unpatched_* | cksum | tr -d ' ')
mkdir -p "$answers"
# Several at a time: the oracle's half of a gate runs on the CPU, the GPU is mostly idle. Output in $out/NAME, exit code in $out/NAME.code.
cores=$(nproc)
export build seed out here limit first answers
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores / jobs > 4 ? 4 : cores / jobs > 1 ? cores / jobs : 1))}
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
mapfile -t selected < <(selected_patches)
# First, one at a time, those whose clocks are looked at: processes that share a GPU wait for each other.
trainers=
for trainer in fp32 mixed; do
  case " ${selected[*]-} " in *"|$trainer "*) trainers+=" $trainer" ;; esac
done
[ -n "$trainers" ] || trainers=" fp32 mixed"
for trainer in $trainers; do
  run "gate_unpatched_$trainer"
  if [ "$(cat "$out/gate_unpatched_$trainer.code")" -eq 3 ]; then cat "$out/gate_unpatched_$trainer.err" >&2; exit 3; fi
done
# name|class|trainer -> program|class
program_of() { local rest=${1#*|}; echo "gate_bug_${1%%-*}|${rest%|*}"; }
programs() { local patch; for patch in ${selected[@]+"${selected[@]}"}; do program_of "$patch"; done; }
for patch in ${selected[@]+"${selected[@]}"}; do
  if grep -qE '^Caught-by: (clock|late work|timed steps)' "$here/${patch%%|*}.patch"; then
    program=$(program_of "$patch")
    run "${program%%|*}" "${program#*|}"
  fi
done
programs | xargs -P "$jobs" -d '\n' -I{} bash -c 'run "${1%%|*}" "${1#*|}"' run {}
[ -z "$racecheck" ] || programs | cut -d'|' -f1 | xargs -P "$jobs" -I{} bash -c 'race {}'

good=1
for trainer in $trainers; do
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
if selects_cheats; then "$build/bin/gate_test" --gtest_filter='Cheats.each*' > "$out/cheats" 2>&1; fi
"$here/score.sh" "$out" ${selection[@]+"${selection[@]}"} | tee "$out/printed"
[ "${PIPESTATUS[0]}" -eq 0 ] || good=0

mkdir -p "$(dirname "$score")"
revision=$(git -C "$here" describe --always --dirty --abbrev=12 --match='' 2>/dev/null || echo "${STEPSCOPE_REVISION:-unknown}")
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
{
  echo "# $(tail -1 "$out/printed")"
  printf '# revision\t%s\n# date\t%s\n# device\t%s\n# driver\t%s\n# seed\t%s\n# selection\t%s\n# seconds per program\t%s\n# programs at a time\t%s\n' \
    "$revision" "$(date -u +%Y-%m-%dT%H:%MZ)" "${device%%, *}" "${device##*, }" "$seed" "${selection[*]:-everything}" "$limit" "$jobs"
  for trainer in $trainers; do printf '# unpatched %s\texit %s\n' "$trainer" "$(cat "$out/gate_unpatched_$trainer.code")"; done
  printf '# kind\trow\tof\tpatch\tcheck that must fail\tresult\tclass\n'
  cat "$out/score.tsv" "$out/totals.tsv"
} > "$score"
echo "written: $score"
[ $good -eq 1 ]
