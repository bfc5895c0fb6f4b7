#!/usr/bin/env bash
# pytorch.sh with stubs in the place of the GPU, PyTorch and stepscope: which parts run, with what, what comes back, and which exit code says so.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
mkdir -p "$folder/path" "$folder/shard"
stub "$folder/path/nvidia-smi" 'echo "GPU 0: made up"'
stub "$folder/path/python3" 'echo "python3 $*" >>'"$folder"'/calls
case "$*" in *" ${FAILS:-none} "*) exit 1;; *" losses "*) sleep ${SLOW:-0};; esac
while [ $# -gt 0 ]; do [ "$1" != --out ] || echo "{}" >"$2/record.json"; shift; done'
stub "$folder/stepscope" 'echo "stepscope $*" >>'"$folder"'/calls
while [ $# -gt 0 ]; do
  case "$1" in -o) echo "{}" >"$2";; --checkpoints) mkdir -p "$2/step-00000300" && touch "$2/step-00000300/model.bin";; esac
  shift
done'
touch "$folder/ops.so" "$folder/tokens.bin" "$folder/set.bin"
given=(--stepscope "$folder/stepscope" --ops "$folder/ops.so" --data "$folder/tokens.bin")
parts() { rm -rf "$folder/out" "$folder/calls"; PATH=$folder/path:$PATH "$here/pytorch.sh" "$folder/out" "$@" >"$folder/said" 2>&1; }
result() { tar -C "$folder" -xzf "$folder/out/pytorch.tar.gz" && awk -F'\t' -v s="$1" '$1 == s { print $2 }' "$folder/pytorch/results.tsv"; }

parts "${given[@]}" --set "$folder/set.bin" || complain "all good exits $?: $(cat "$folder/said")"
[ "$(ls "$folder/out")" = pytorch.tar.gz ] || complain "the folder holds $(ls "$folder/out")"
[ "$(result losses)/$(result evaluation)/$(result ours)" = 0/0/0 ] || complain "results are $(cat "$folder/pytorch/results.tsv")"
[ "$(wc -l <"$folder/pytorch/results.tsv")" = 13 ] || complain "not twelve parts: $(cat "$folder/pytorch/results.tsv")"
for file in profile_eager_now.json profile_compiled_replaced_now.json profile_ours_now.json record.json evaluation.log; do
  [ -f "$folder/pytorch/$file" ] || complain "$file does not come back"
done
grep -q "measure.py losses .*--data $folder/tokens.bin .*adamw=default" "$folder/calls" || complain "losses are of other data or ops"
grep -q "evaluate.py compare .*step-00000300/model.bin $folder/set.bin" "$folder/calls" || complain "another checkpoint or set is evaluated"
FAILS=check parts "${given[@]}" check own && complain "a failed part exits 0"
[ "$(result check)/$(result own)" = 1/0 ] || complain "a failed check gives '$(result check)/$(result own)'"
SLOW=60 parts "${given[@]}" --limit 1 losses own && complain "a part that the limit ended exits 0"
[ "$(result losses)/$(result own)" = 124/- ] || complain "the limit gives '$(result losses)/$(result own)'"
for bad in "--stepscope none" "--ops none" "--data none" "--limit soon" "sing" "--fast" "evaluation"; do
  # shellcheck disable=SC2086  # a flag and its value
  parts "${given[@]}" $bad
  [ $? = 2 ] || complain "'$bad' does not exit 2"
done
stub "$folder/path/nvidia-smi" 'exit 9'
parts "${given[@]}" own
[ $? = 3 ] || complain "no GPU does not exit 3"
exit $problems
