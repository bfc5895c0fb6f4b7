#!/usr/bin/env bash
# What a change of device code needs before it lands, in one call on a machine with a GPU:
#   tests/device/renew.sh OUT [--limit SECONDS] [--patch FILE] [--seed N] [--stepscope PROGRAM] [STEP…]
# Steps, in the order in which they are given (default: the first four):
#   build      the program, the collector and the GPU tests, with the launcher's flags, in build/release
#   receipts   the gate of each trainer writes its receipt; on two GPUs beside each other
#   tests      every test that needs a GPU
#   profile    `profile --steps 50 --sustained` at B=4 and B=64
#   sanitize   compute-sanitizer over both trainers (tests/device/sanitize_ops.sh)
#   studies    the experiments whose file changes the sources by a patch, alone on the device
#   --patch    is applied to this tree before the first step, and stays applied: the receipts are of it
#   --limit    no step begins after so many seconds, and the one that runs then is ended (default: none)
# OUT gets NAME.log of each step, receipts, profiles and verdicts, and results.tsv: step, exit code (124: ended by the limit; -: not begun), seconds.
# Exit 0: every step passed. 1: one did not. 2: wrong flags, or a patch that does not apply. 3: no GPU.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/device/timed_step.sh"
usage="usage: renew.sh OUT [--limit SECONDS] [--patch FILE] [--seed N] [--stepscope PROGRAM] [build|receipts|tests|profile|sanitize|studies…]"
out= limit= patch= seed=$((RANDOM * 32768 + RANDOM)) program=$root/build/release/bin/stepscope steps=()
while [ $# -gt 0 ]; do
  case "$1" in
    --limit) limit=${2:?$usage}; shift ;;
    --patch) patch=${2:?$usage}; shift ;;
    --seed) seed=${2:?$usage}; shift ;;
    --stepscope) program=${2:?$usage}; shift ;;
    build | receipts | tests | profile | sanitize | studies) steps+=("$1") ;;
    -*) echo "renew.sh: unknown option $1; $usage" >&2; exit 2 ;;
    *) [ -z "$out" ] || { echo "renew.sh: unknown step $1; $usage" >&2; exit 2; }; out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || { echo "$usage" >&2; exit 2; }
[[ -z $limit || $limit =~ ^[1-9][0-9]*$ ]] || { echo "renew.sh: --limit is '$limit': expected whole seconds; $usage" >&2; exit 2; }
[ ${#steps[@]} -gt 0 ] || steps=(build receipts tests profile)
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "renew.sh: nvidia-smi names no GPU" >&2; exit 3; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
if [ -n "$patch" ]; then
  git -C "$root" apply "$(realpath "$patch")" || { echo "renew.sh: $patch does not apply to $root" >&2; exit 2; }
fi

build() {
  STEPSCOPE_BUILD_DIR=${program%/bin/*} "$root/stepscope" --version && ninja -C "${program%/bin/*}" all
}
receipt_of() { CUDA_VISIBLE_DEVICES=$2 "$program" gate --trainer "$1" --seed "$seed" --write-receipt --receipt-folder "$out" >"$out/gate-$1.txt" 2>&1; }
receipts() {
  local second=0 failed=0
  [ "$gpus" -lt 2 ] || second=1
  if [ $second = 1 ]; then
    receipt_of fp32 0 & local first=$!
    receipt_of mixed 1 || failed=1
    wait $first || failed=1
  else
    receipt_of mixed 0 || failed=1
    receipt_of fp32 0 || failed=1
  fi
  tail -n 3 "$out"/gate-*.txt
  return $failed
}
tests() { ctest --test-dir "${program%/bin/*}" -L gpu --resource-spec-file "${program%/bin/*}/gpu_slots.json" --output-on-failure -j 4; }
profile() {
  local b failed=0
  for b in 4 64; do
    "$program" profile --steps 50 --sustained --batch-size $b --out "$out/profile-$b.json" || failed=1
  done
  return $failed
}
sanitize() {
  local trainer failed=0
  for trainer in fp32 mixed; do OUT=$out "$root/tests/device/sanitize_ops.sh" "$program" $trainer || failed=1; done
  return $failed
}
studies() {
  local names
  names=$(cd "$root/experiments/studies" && grep -lE '^ *(change: *\{ *)?patch: ' ./*.yaml | sed 's|^\./||; s|\.yaml$||')
  [ -n "$names" ] || { echo "no experiment has a patch"; return 0; }
  # shellcheck disable=SC2086
  "$program" experiment run $names --sequential --out "$out/studies"
  [ $? -ne 2 ] && [ $? -ne 3 ]  # slower or undecided is an answer
}

worst=0
SECONDS=0
printf 'step\texit\tseconds\n' >"$out/results.tsv"
for step in "${steps[@]}"; do
  timed_step "$out" "$limit" "$step" && continue
  code=$?
  worst=1
  [ $code = 125 ] || tail -n 15 "$out/$step.log"
  # Nothing behind a build that failed says anything.
  [ "$step" != build ] || [ $code = 125 ] || break
done
cat "$out/results.tsv"
exit $worst
