#!/usr/bin/env bash
# How long the first five minutes take: a fresh clone of the committed tree, nothing cached, ./stepscope until its first table, then
# ./stepscope test. Prints one table: wall seconds and CPU seconds (user + system, children included) of each, and the ten dearest files.
#   tests/build/time_first_run.sh [TREE] [FOLDER]    TREE: what is cloned (default: this one)   FOLDER: kept, else a temporary one
# With STEPSCOPE_OFFLINE=1, for a machine without network, the headers in TREE/.deps are copied into the clone instead of downloaded.
# The machine should be idle: wall times are of a shared machine otherwise, and CPU times grow with its load too.
set -euo pipefail
tree=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
keep=${2:-}
folder=${keep:-$(mktemp -d)}
[ -n "$keep" ] || trap 'rm -rf "$folder"' EXIT
export CCACHE_DISABLE=1
unset STEPSCOPE_BUILD_DIR STEPSCOPE_NO_BUILD
say() { printf '%s\n' "$*" >&2; }

git clone -q "$tree" "$folder/clone"
cd "$folder/clone"
[ -z "${STEPSCOPE_OFFLINE:-}" ] || [ ! -d "$tree/.deps" ] || cp -r "$tree/.deps" .
timed() {  # NAME COMMAND…: its wall and CPU seconds into NAME.time, its output into NAME.log
  local name=$1 status=0
  shift
  say "$name: $*"
  { TIMEFORMAT='%R %U %S'; time "$@" >"$folder/$name.log" 2>&1; } 2>"$folder/$name.time" || status=$?
  echo "$status" >"$folder/$name.status"
  say "$name: exit $status after $(cut -d' ' -f1 "$folder/$name.time") s"  # a run that is cut off has said as much as it knows
}
timed table ./stepscope profile --steps 50
timed tests ./stepscope test
timed again ./stepscope profile --steps 50

echo "revision  $(git rev-parse --short HEAD)   $(nproc) cores, $(uname -m), load $(cut -d' ' -f1 /proc/loadavg)"
if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name --format=csv,noheader; else echo "no GPU"; fi
printf '%-28s %8s %8s %6s\n' step wall_s cpu_s exit
for name in table tests again; do
  case $name in table) text="clone to first table" ;; tests) text="then ./stepscope test" ;; *) text="the table once more" ;; esac
  awk -v text="$text" -v code="$(cat "$folder/$name.status")" '{ printf "%-28s %8.1f %8.1f %6d\n", text, $1, $2 + $3, code }' "$folder/$name.time"
done
tail -1 "$folder/tests.log"
echo
echo "wall seconds of the dearest files (all jobs at once, so a file's own time is at most this):"
for log in build/*/.ninja_log; do
  awk -F'\t' '!/^#/ { seconds[$4] = ($2 - $1) / 1000 } END { for (f in seconds) printf "%8.1f  %s\n", seconds[f], f }' "$log"
done | sort -rn | awk 'NR <= 10'
