#!/usr/bin/env bash
# Runs a test program many times and counts the runs that fail, alone or beside busy loops: no test may depend on load or luck.
#   tests/repeat.sh PROGRAM N [--filter GTEST_FILTER] [--busy LOOPS] [--jobs J]
# PROGRAM is a gtest binary (build/release/bin/gpt2_files_test). With --busy so many shell loops use the CPU meanwhile; with --jobs so many
# runs go on at a time, which is a load too. The last line is the count. Exit 0: none failed.
set -u
program=${1:?usage: repeat.sh PROGRAM N [--filter F] [--busy LOOPS] [--jobs J]}
n=${2:?usage: repeat.sh PROGRAM N [--filter F] [--busy LOOPS] [--jobs J]}
shift 2
filter='*' busy=0 jobs=1
while [ $# -gt 0 ]; do
  case "$1" in
    --filter) filter=$2 ;;
    --busy) busy=$2 ;;
    --jobs) jobs=$2 ;;
    *) echo "repeat.sh: unknown $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$program" ] || { echo "repeat.sh: $program is no program" >&2; exit 2; }
out=$(mktemp -d)
loops=()
trap '[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2> /dev/null; rm -rf "$out"' EXIT
for ((i = 0; i < busy; i++)); do
  while :; do :; done &
  loops+=($!)
done
export program filter out
one() {
  "$program" --gtest_filter="$filter" > "$out/$1" 2>&1 || { mv "$out/$1" "$out/failed-$1"; return 0; }
  grep -q '^\[  PASSED  \] [1-9]' "$out/$1" || mv "$out/$1" "$out/failed-$1"  # a filter that matches nothing is no success
  rm -f "$out/$1"
}
export -f one
seq "$n" | xargs -P "$jobs" -I{} bash -c 'one {}'
failed=0
for log in "$out"/failed-*; do
  [ -e "$log" ] || continue
  failed=$((failed + 1))
  grep '^\[  FAILED  \]\|Failure$' "$log" | sort -u | head -5
done
echo "$(basename "$program") $filter: $failed of $n runs failed ($busy busy loops, $jobs at a time, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg))"
[ "$failed" -eq 0 ]
