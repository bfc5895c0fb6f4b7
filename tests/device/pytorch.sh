#!/usr/bin/env bash
# What docs/python.md, docs/evaluation.md and docs/study/pytorch-and-ours.md show, measured again in one call on a machine with a GPU and PyTorch:
#   tests/device/pytorch.sh OUT --stepscope PROGRAM --ops LIBRARY --data TOKENS [--set SET] [--limit SECONDS] [PART…]
# Parts, in the order in which they are given (default: all):
#   tests       the tests of python/ that need a GPU
#   check       every op of Hugging Face's GPT-2 replaced, against fp64
#   bench       every op and the eager step at B=16 against PyTorch's; bench_compiled: also against Inductor's ops, and the compiled step
#   losses      200 steps at B=4, three seeds: PyTorch, PyTorch again, every op and the optimizer replaced
#   own         a Triton layernorm, right and wrong
#   evaluation  one checkpoint, trained here for 300 steps on TOKENS, asked SET's questions by every trainer and by PyTorch
#   eager, compiled, ours, replaced, compiled_replaced   a profile each at B=16, profile_NAME_now.json
# PROGRAM and LIBRARY (libstepscope_ops.so) are built before; nothing is built here. TOKENS is a shard to train on, SET an evaluation set of
# other text (python/tools/evaluate.py questions, stepscope data --eval-set).
# --limit: no part begins after so many seconds, and the one that runs then is ended (default: none).
# OUT gets pytorch.tar.gz alone: NAME.log of each part, the records, profiles, and results.tsv: part, exit code (124: ended by the limit; -: not
# begun), seconds. Unpacked, `python3 python/tools/page.py --take FILE…` keeps the records and `page.py` puts them into the pages.
# Exit 0: every part passed. 1: one did not. 2: wrong arguments. 3: no GPU.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/device/timed_step.sh"
usage="usage: pytorch.sh OUT --stepscope PROGRAM --ops LIBRARY --data TOKENS [--set SET] [--limit SECONDS] [PART…]"
all=(tests check bench losses own evaluation eager compiled ours replaced compiled_replaced bench_compiled)
out='' program='' ops='' data='' questions='' limit='' parts=()
wrong() { echo "pytorch.sh: $*; $usage" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --stepscope) program=${2:?$usage}; shift ;;
    --ops) ops=${2:?$usage}; shift ;;
    --data) data=${2:?$usage}; shift ;;
    --set) questions=${2:?$usage}; shift ;;
    --limit) limit=${2:?$usage}; shift ;;
    -*) wrong "unknown option $1" ;;
    *) if [ -z "$out" ]; then out=$1
       elif [[ " ${all[*]} " == *" $1 "* ]]; then parts+=("$1")
       else wrong "unknown part $1"; fi ;;
  esac
  shift
done
[ -n "$out" ] || wrong "no folder to write to"
[ -x "$program" ] || wrong "--stepscope is '$program': expected the built program"
[ -f "$ops" ] || wrong "--ops is '$ops': expected libstepscope_ops.so"
[ -f "$data" ] || wrong "--data is '$data': expected a token shard"
[[ -z $limit || $limit =~ ^[1-9][0-9]*$ ]] || wrong "--limit is '$limit': expected whole seconds"
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
[[ " ${parts[*]} " != *" evaluation "* || -f $questions ]] || wrong "--set is '$questions': expected an evaluation set for the part evaluation"
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || { echo "pytorch.sh: nvidia-smi names no GPU" >&2; exit 3; }
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd) program=$(realpath "$program") data=$(realpath "$data")
STEPSCOPE_OPS_LIBRARY=$(realpath "$ops")
[ -z "$questions" ] || questions=$(realpath "$questions")
export STEPSCOPE_OPS_LIBRARY STEPSCOPE_TEST_PROGRAM=$program PYTHONPATH=$root/python PYTHONUNBUFFERED=1
work=$(mktemp -d)
made=$work/pytorch
mkdir "$made"
trap 'tar -C "$work" -czf "$out/pytorch.tar.gz" pytorch; rm -rf "$work"' EXIT

every=layernorm=default,gelu=default,attention=default,loss=default
measure() { python3 "$root/python/tools/measure.py" "$@" --out "$made"; }
tests() { STEPSCOPE_TEST_PYTHON=python3 "$root/tests/python/run_pytest.sh" "$root" gpu; }
check() { measure check --model hf --batch 4 --variants "$every" --tag _hf; }
bench() { measure bench --batch 16; }
bench_compiled() { measure bench --batch 16 --compiled --tag _compiled; }
losses() { measure losses --batch 4 --steps 200 --seeds 3 --data "$data" --variants "$every,adamw=default"; }
own() { measure own --batch 16; }
evaluation() {
  "$program" train --trainer mixed --model d12 --data "$data" -b 16 -t 1024 --steps 300 --lr 6e-4 --lr-warmup 30 --checkpoints "$work/kept" -q &&
    python3 "$root/python/tools/evaluate.py" compare "$work"/kept/step-*300/model.bin "$questions" --program "$program" --out "$made"
}
# 69 steps are what a profile wants.
profile() {
  local name=$1
  shift
  "$program" profile --step-range step --by op -o "$made/profile_${name}_now.json" -- python3 "$root/python/tools/measure.py" step --batch 16 --steps 72 "$@"
}
eager() { profile eager; }
compiled() { profile compiled --compiled; }
replaced() { profile replaced --replaced --variants "$every,adamw=default"; }
compiled_replaced() { profile compiled_replaced --compiled --replaced; }
ours() { "$program" profile --trainer mixed --batch-size 16 --by op -o "$made/profile_ours_now.json"; }

worst=0
SECONDS=0
printf 'part\texit\tseconds\n' >"$made/results.tsv"
for part in "${parts[@]}"; do
  timed_step "$made" "$limit" "$part" || worst=1
  [ ! -f "$made/$part.log" ] || tail -n 12 "$made/$part.log"
done
cat "$made/results.tsv"
exit $worst
