#!/bin/bash
# Runs compute-sanitizer over every op of a trainer at the fewest rows that turn each loop over a capped grid twice.
#   tests/device/sanitize_ops.sh BUILD/stepscope TRAINER [TOOL…]      tools: memcheck racecheck initcheck synccheck (default: all)
# Exit 1 when a tool found something or the gate failed; one line per tool on stdout, the whole output in $OUT (default: a new folder).
# Only kernels of the trainer's own namespace, of hopper and of gpt2::ops are looked at: the judge's and the libraries' take most of the time otherwise.
set -u
stepscope=$1 trainer=$2
shift 2
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
out=${OUT:-$(mktemp -d)}
failed=0
for tool in "${tools[@]}"; do
  log=$out/sanitize-$trainer-$tool.txt
  begin=$SECONDS
  # Substrings of the mangled name: a namespace with its length before it. initcheck has to see every write, also the judge's.
  filter=(--kernel-name "kns=${#trainer}$trainer" --kernel-name "kns=6hopper" --kernel-name "kns=N4gpt23ops")
  [ "$tool" = initcheck ] && filter=()
  # 86: compute-sanitizer found errors; anything else is the gate's own answer.
  compute-sanitizer --tool "$tool" --error-exitcode 86 "${filter[@]}" "$stepscope" gate --trainer "$trainer" --no-model --op-sizes reduced \
    --seed 11 >"$log" 2>&1
  code=$?
  summary=$(grep -E "ERROR SUMMARY|RACECHECK SUMMARY" "$log" | tail -1)
  printf '%s %s: exit %d in %d s. %s\n' "$trainer" "$tool" $code $((SECONDS - begin)) "$summary"
  # A tool that never ran must not look like one that found nothing.
  if [ $code -ne 0 ] || [ -z "$summary" ]; then
    failed=1
    tail -30 "$log"
  fi
done
exit $failed
