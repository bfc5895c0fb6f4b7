#!/usr/bin/env bash
# The mutation score, from what the gate programs and the cheats test printed: tests/bugs/score.sh OUTPUT_DIR [--without CHECK]
# OUTPUT_DIR holds gate_bug_NN and gate_bug_NN.code of every patch (run_bugs.sh writes them) and cheats, the output of
# `gate_test --gtest_filter='Cheats.each*'`. table.tsv says which patch is which of the 36 bugs and 12 cheats.
# --without takes one check away: what only it sees is missed.
# A patch is caught when the check that it names is among those that failed. A row is caught when all its patches and, of a cheat, the
# trainer that cheats so in tests/gate/cheating_trainer.h are. Writes OUTPUT_DIR/score.tsv, one line per patch and cheat; the last line
# printed is the score. Exit 0: every one caught.
set -u
out=${1:?usage: score.sh OUTPUT_DIR [--without CHECK]}
without=
[ "${2:-}" = --without ] && without=${3:?--without needs the name of a check}
here=$(cd "$(dirname "$0")" && pwd)
: > "$out/score.tsv"

# patch -> one line in score.tsv; succeeds when it was caught
judge() {
  local stem=$1 kind=$2 row=$3 trainer=$4 number check code result
  number=${stem%%-*}
  read -r check < "$here/$stem.patch"
  check=${check#Caught-by: }
  code=none
  [ -s "$out/gate_bug_$number.code" ] && read -r code < "$out/gate_bug_$number.code"
  if [ -n "$without" ] && [[ "$check" = "$without"* ]]; then
    result="MISSED (without that check)"
  elif [ "$code" = 1 ] && grep -qF "failed: $check" "$out/gate_bug_$number"; then
    result="caught ($(grep -c '^failed:' "$out/gate_bug_$number") checks failed)"
  elif [ "$code" = 9 ] && [ "${check%% *}" = racecheck ]; then
    result="caught ($(grep -o 'RACECHECK SUMMARY.*' "$out/gate_bug_$number" | head -1))"
  elif [ "$code" = 1 ]; then
    result="MISSED by that check; failing: $(grep '^failed:' "$out/gate_bug_$number" | head -1)"
  else
    result="MISSED (exit $code) $(tail -1 "$out/gate_bug_$number.err" 2>/dev/null)"
  fi
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$kind" "$row" "$trainer" "$stem" "$check" "$result" >> "$out/score.tsv"
  [ "${result%% *}" = caught ]
}

declare -A rows rows_caught patches patches_caught
count() { eval "$1[\$2]=\$(( \${$1[\$2]:-0} + 1 ))"; }
while IFS=$'\t' read -r kind row what fp32 mixed; do
  case "$kind" in bug | extra | cheat) ;; *) continue ;; esac
  whole=1
  for cell in "fp32 $fp32" "mixed $mixed"; do
    trainer=${cell%% *}
    stems=${cell#* }
    case "$stems" in -*) continue ;; esac
    for stem in ${stems//,/ }; do
      [ "$kind" = cheat ] || count patches "$trainer"
      if judge "$stem" "$kind" "$row" "$trainer"; then
        [ "$kind" = cheat ] || count patches_caught "$trainer"
      else
        whole=0
      fi
    done
  done
  if [ "$kind" = cheat ]; then
    line=$(awk -F'\t' -v what="$what" '$1 == "cheat" && $2 == what' "$out/cheats" 2>/dev/null | head -1)
    check=$(printf '%s' "$line" | cut -f3)
    result=$(printf '%s' "$line" | cut -f4)
    [ -n "$without" ] && [ "$check" = "$without" ] && result="MISSED (without that check)"
    [ -n "$result" ] || result="MISSED (not run)"
    printf 'cheat\t%s\thost\t%s\t%s\t%s\n' "$row" "$what" "$check" "$result" >> "$out/score.tsv"
    [ "$result" = caught ] || whole=0
  fi
  count rows "$kind"
  [ $whole -eq 1 ] && count rows_caught "$kind"
done < "$here/table.tsv"

printf '%-5s %-3s %-5s %-40s %-42s %s\n' kind row of patch "check that must fail" result
while IFS=$'\t' read -r kind row trainer stem check result; do
  printf '%-5s %-3s %-5s %-40s %-42s %s\n' "$kind" "$row" "$trainer" "$stem" "$check" "$result"
done < "$out/score.tsv"
printf 'kernel bugs %d/%d (patches: fp32 %d/%d, mixed %d/%d), harness cheats %d/%d\n' \
  "${rows_caught[bug]:-0}" "${rows[bug]:-0}" "${patches_caught[fp32]:-0}" "${patches[fp32]:-0}" \
  "${patches_caught[mixed]:-0}" "${patches[mixed]:-0}" "${rows_caught[cheat]:-0}" "${rows[cheat]:-0}"
for kind in bug extra cheat; do
  [ "${rows_caught[$kind]:-0}" -eq "${rows[$kind]:-0}" ] || exit 1
done
[ "${rows[bug]:-0}" -ge 36 ] && [ "${rows[cheat]:-0}" -ge 12 ]
