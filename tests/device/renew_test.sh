#!/usr/bin/env bash
# renew.sh with stubs in the place of the GPU and of everything that it starts: which steps run, what is kept, and which exit code says so.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
tree=$folder/tree
mkdir -p "$tree/tests/device" "$tree/build/release/bin" "$tree/experiments/studies" "$folder/path"
cp "$here/renew.sh" "$here/timed_step.sh" "$here/sanitize_ops.sh" "$tree/tests/device"
stub "$folder/path/nvidia-smi" 'echo "GPU 0: made up"; [ "${TWO:-}" = "" ] || echo "GPU 1: made up"'
stub "$folder/path/ninja" 'exit 0'
stub "$folder/path/ctest" 'echo "$@"; exit ${CTEST:-0}'
stub "$tree/stepscope" 'exit 0'
stub "$tree/build/release/bin/stepscope" 'echo "$CUDA_VISIBLE_DEVICES: $*" >>'"$folder"'/calls
case "$1 $*" in *"--trainer ${FAILS:-none}"*) exit 1;; profile*) sleep ${SLOW:-0};; esac
[ "$1" != experiment ] || exit 4'
printf 'change: {variant: {op: new}}\n' >"$tree/experiments/studies/variant.yaml"
printf 'change: {patch: a.patch}\n' >"$tree/experiments/studies/inline.yaml"
printf 'change:\n  patch: b.patch\n' >"$tree/experiments/studies/block.yaml"
printf 'one\n' >"$tree/file"
printf -- '--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n+two\n' >"$folder/good.patch"
printf -- '--- a/file\n+++ b/file\n@@ -1 +1 @@\n-none\n+two\n' >"$folder/bad.patch"
git -C "$tree" init -q
renew() { rm -rf "$folder/out" "$folder/calls"; PATH=$folder/path:$PATH "$tree/tests/device/renew.sh" "$folder/out" "$@" >"$folder/said" 2>&1; }
result() { awk -F'\t' -v s="$1" '$1 == s { print $2 }' "$folder/out/results.tsv"; }

renew --seed 7 || complain "all good exits $?"
[ "$(cut -f1 "$folder/out/results.tsv" | tr '\n' ' ')" = "step build receipts tests profile " ] || complain "other steps than the first four"
grep -q -- '0: gate --trainer mixed --seed 7 --write-receipt --receipt-folder' "$folder/calls" || complain "no receipt of the mixed trainer with that seed"
TWO=1 renew receipts
grep -q '1: gate --trainer mixed' "$folder/calls" && grep -q '0: gate --trainer fp32' "$folder/calls" || complain "two GPUs do not gate beside each other"
for trainer in fp32 mixed; do
  FAILS=$trainer renew receipts tests && complain "a refused $trainer trainer exits 0"
  [ "$(result receipts)/$(result tests)" = 1/0 ] || complain "$trainer: receipts $(result receipts), tests $(result tests)"
done
renew tests
grep -rqF -- "--resource-spec-file $tree/build/release/gpu_slots.json" "$folder/out" || complain "tests share the GPU that may not: ctest does not know its slots"
CTEST=8 renew tests && complain "failed tests exit 0"
[ "$(result tests)" = 1 ] || complain "failed tests are '$(result tests)'"
stub "$tree/stepscope" 'exit 2'
renew build tests && complain "a failed build exits 0"
[ "$(result tests)" = "" ] || complain "something ran behind a failed build"
stub "$tree/stepscope" 'exit 0'
SLOW=60 renew --limit 1 profile tests && complain "a step that the limit ended exits 0"
[ "$(result profile)/$(result tests)" = 124/- ] || complain "the limit gives '$(result profile)/$(result tests)'"
pgrep -f "$tree/build/release/bin/stepscope" >/dev/null && complain "a step lives on behind its limit"
renew studies || complain "an undecided study fails the call"
grep -q 'experiment run block inline --sequential' "$folder/calls" || complain "the studies with a patch are '$(grep experiment "$folder/calls")'"
renew tests --patch "$folder/bad.patch"
[ $? = 2 ] || complain "a patch that does not apply does not exit 2"
renew tests --patch "$folder/good.patch" && [ "$(cat "$tree/file")" = two ] || complain "the patch was not applied"
renew sing
[ $? = 2 ] || complain "an unknown step does not exit 2"
renew --limit soon
[ $? = 2 ] || complain "--limit soon does not exit 2"
stub "$folder/path/nvidia-smi" 'exit 9'
renew
[ $? = 3 ] || complain "no GPU does not exit 3"
exit $problems
