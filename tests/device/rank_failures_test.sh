#!/usr/bin/env bash
# rank_failures.py with ranks of the CPU reference, and a stub in the place of nvidia-smi: rounds of two campaigns at once, what is said of GPU
# memory, and that memory which stays, and rounds that were not begun, exit 1.
#   rank_failures_test.sh PROGRAM
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
mkdir "$folder/path"
# Processes of the same program that other tests started are none of these.
export OF_THE_TEST_IN=$folder
# Of one process that is not ours, with 500 MiB; once a first round has looked, MORE MiB more.
stub "$folder/path/nvidia-smi" 'case $1 in
--query-gpu=memory.used) [ -e "'"$folder"'/looked" ] && echo $((500 + ${MORE:-0})) || echo 500; touch "'"$folder"'/looked" ;;
--query-compute-apps=pid) echo 1; [ -z "${OURS:-}" ] || cat /proc/[0-9]*/status 2>/dev/null | awk "/^Name:/ { name = \$2 } /^Pid:/ && name ~ /^stepscope/ { print \"/proc/\" \$2 \"/environ\" }" |
  xargs -r grep -lsxz "OF_THE_TEST_IN=$OF_THE_TEST_IN" | grep -o "[0-9]*" ;;
esac'
failures() {
  rm -f "$folder/looked" "$folder/out.json"
  PATH=$folder/path:$PATH python3 "$here/rank_failures.py" "$1" --seed 3 --longest-s 0.3 --out "$folder/out.json" "${@:2}" -- \
    --trainer reference --model tiny -t 16 -b 1 >"$folder/said" 2>&1
}
value() { python3 -c "import json; d = json.load(open('$folder/out.json')); print($1)"; }

OURS=1 failures "$1" --rounds 4 --ways kill,interrupt --at-once 2 || complain "four rounds exit $?: $(cat "$folder/said")"
[ "$(value 'd["summary"]["rounds"], len({r["campaign"] for r in d["rounds"]}), d["summary"]["ways"]["kill"]["rounds"]')" = "4 2 2" ] ||
  complain "not four rounds of two campaigns: $(cat "$folder/said")"
[ "$(value 'd["summary"]["gpu_memory"]')" = "by process, and as a whole at the end: free" ] || complain "another look at memory: $(value 'd["summary"]["gpu_memory"]')"
MORE=7 failures "$1" --rounds 1 --ways kill && complain "7 MiB that stay exit 0"
[ "$(value 'd["summary"]["gpu_memory"], d["summary"]["not_good"]')" = "as a whole at the end: 7 MiB are not free 0" ] ||
  complain "memory that stays is not said: $(cat "$folder/said")"
failures "$1" --rounds 2 --ways kill --limit-s -1 && complain "rounds that were not begun exit 0"
[ "$(value 'd["summary"]["not_begun"]')" = 2 ] || complain "it does not say that two rounds were not begun: $(cat "$folder/said")"
exit $problems
