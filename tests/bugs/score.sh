#!/usr/bin/env bash
# The mutation score, from what the gate programs and the cheats test printed:
#   tests/bugs/score.sh OUTPUT_DIR [--without CHECK] [--only NUMBERS] [--class CLASS]
# OUTPUT_DIR holds gate_bug_NN and gate_bug_NN.code of every patch (run_bugs.sh writes them) and cheats, the output of
# `gate_test --gtest_filter='Cheats.each*'`. table.tsv says which patch is which of the bugs and cheats; selection.sh which are counted.
# --without takes one check away: what only it sees is missed.
# A patch is caught when the check that it names is among those that failed; "any" is every check, also of a gate that was ended by the
# time limit after one had failed, and racecheck where it was run on what the gate let through. A row is caught when all its selected patches and, of a cheat, the trainer that cheats so in
# tests/gate/cheating_trainer.h are. Writes OUTPUT_DIR/score.tsv, one line per patch and cheat, and OUTPUT_DIR/totals.tsv, one line per
# class; the last line printed is the score. Exit 0: every one caught.
set -u
out=${1:?usage: score.sh OUTPUT_DIR [--without CHECK] [--only NUMBERS] [--class CLASS]}
shift
here=$(cd "$(dirname "$0")" && pwd)
. "$here/selection.sh"
without=
while [ $# -gt 0 ]; do
  case "$1" in
    --without) without=${2:?--without needs the name of a check} ;;
    --only) take_only "${2:?--only needs numbers}" ;;
    --class) take_class "${2:?--class needs a name}" ;;
    *) echo "score.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
: > "$out/score.tsv"

# file -> its lines after "failed: " in `failures`. Without a process: the score's own test counts some ten thousand patches.
failures=()
read_failures() {
  local line
  failures=()
  [ -r "$1" ] || return 0
  while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in "failed: "*) failures+=("${line#failed: }") ;; esac
  done < "$1"
}
# Whether a failure begins with the check.
fails() {
  local one
  for one in ${failures[@]+"${failures[@]}"}; do case "$one" in "$1"*) return 0 ;; esac; done
  return 1
}

# patch -> one line in score.tsv; succeeds when it was caught
judge() {
  local stem=$1 kind=$2 row=$3 trainer=$4 class=$5 number check code=none race=none result first
  number=${stem%%-*}
  read -r check < "$here/$stem.patch"
  check=${check#Caught-by: }
  [ -s "$out/gate_bug_$number.code" ] && read -r code < "$out/gate_bug_$number.code"
  [ -s "$out/gate_bug_$number.race.code" ] && read -r race < "$out/gate_bug_$number.race.code"
  read_failures "$out/gate_bug_$number"
  first=${failures[0]:-}
  if [ -n "$without" ] && [[ "$check" = "$without"* ]]; then
    result="MISSED (without that check)"
  elif [ "$check" = any ] && { [ "$code" = 1 ] || [ "$code" = 124 ]; } && [ ${#failures[@]} -gt 0 ]; then
    result="caught (${#failures[@]} checks failed; the first: ${first:0:90})"
  elif [ "$check" = any ] && [ "$race" = 9 ]; then
    result="caught ($(grep -o 'RACECHECK SUMMARY.*' "$out/gate_bug_$number.race" | head -1))"
  elif [ "$code" = 1 ] && fails "$check"; then
    result="caught (${#failures[@]} checks failed)"
  elif [ "$code" = 9 ] && [ "${check%% *}" = racecheck ]; then
    result="caught ($(grep -o 'RACECHECK SUMMARY.*' "$out/gate_bug_$number" | head -1))"
  elif [ "$code" = 1 ]; then
    result="MISSED by that check; failing: $first"
  elif [ "$code" = 0 ]; then
    result="MISSED (passed)"
  else
    result="MISSED (exit $code) $(tail -1 "$out/gate_bug_$number.err" 2>/dev/null)"
  fi
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$kind" "$row" "$trainer" "$stem" "$check" "${result//$'\t'/ }" "$class" >> "$out/score.tsv"
  [ "${result%% *}" = caught ]
}

# What gate_test printed of each cheat: "cheat", its name, the check that is there for it, "caught" or not.
declare -A cheat_check cheat_result
if [ -r "$out/cheats" ]; then
  while IFS=$'\t' read -r kind what check result; do
    [ "$kind" = cheat ] && [ -z "${cheat_result[$what]:-}" ] && cheat_check[$what]=$check cheat_result[$what]=$result
  done < "$out/cheats"
fi

declare -A rows rows_caught patches patches_caught
class_order=()
chosen=0
count() { eval "$1[\$2]=\$(( \${$1[\$2]:-0} + 1 ))"; }
while IFS=$'\t' read -r kind row what fp32 mixed class; do
  case "$kind" in bug | extra | cheat | unseen) ;; *) continue ;; esac
  selects_class "$class" || continue
  whole=1
  counted=0
  for cell in "fp32 $fp32" "mixed $mixed"; do
    trainer=${cell%% *}
    stems=${cell#* }
    case "$stems" in -*) continue ;; esac
    for stem in ${stems//,/ }; do
      selects_number "${stem%%-*}" || continue
      counted=1
      # Patches of the first set are counted by trainer, the unseen ones by class and trainer.
      group=$trainer
      [ "$kind" = unseen ] && group="$class $trainer"
      [ "$kind" = cheat ] || count patches "$group"
      if judge "$stem" "$kind" "$row" "$trainer" "$class"; then
        [ "$kind" = cheat ] || count patches_caught "$group"
      else
        whole=0
      fi
    done
  done
  if [ "$kind" = cheat ] && selects_cheats; then
    counted=1
    check=${cheat_check[$what]:-}
    result=${cheat_result[$what]:-}
    [ -n "$without" ] && [ "$check" = "$without" ] && result="MISSED (without that check)"
    [ -n "$result" ] || result="MISSED (not run)"
    printf 'cheat\t%s\thost\t%s\t%s\t%s\t%s\n' "$row" "$what" "$check" "$result" "$class" >> "$out/score.tsv"
    [ "$result" = caught ] || whole=0
  fi
  [ $counted -eq 1 ] || continue
  chosen=$((chosen + 1))
  count rows "$kind"
  [ $whole -eq 1 ] && count rows_caught "$kind"
  if [ "$kind" = unseen ]; then
    [ -n "${rows[class $class]:-}" ] || class_order+=("$class")
    count rows "class $class"
    [ $whole -eq 1 ] && count rows_caught "class $class"
  fi
done < "$here/table.tsv"

printf '%-6s %-3s %-5s %-40s %-42s %s\n' kind row of patch "check that must fail" result
while IFS=$'\t' read -r kind row trainer stem check result class; do
  printf '%-6s %-3s %-5s %-40s %-42s %s\n' "$kind" "$row" "$trainer" "$stem" "$check" "$result"
done < "$out/score.tsv"

# of() KEY: "caught/all"; classes: of the unseen bugs, each with its patches
of() { printf '%d/%d' "${rows_caught[$1]:-0}" "${rows[$1]:-0}"; }
patches_of() { printf '%d/%d' "${patches_caught[$1]:-0}" "${patches[$1]:-0}"; }
printf '# class\tbugs caught\tpatches of fp32\tpatches of mixed\n' > "$out/totals.tsv"
by_class=
for class in ${class_order[@]+"${class_order[@]}"}; do
  printf '%s\t%s\t%s\t%s\n' "$class" "$(of "class $class")" "$(patches_of "$class fp32")" "$(patches_of "$class mixed")" |
    tee -a "$out/totals.tsv" | awk -F'\t' '{ printf "unseen, %-10s  bugs %s (patches: fp32 %s, mixed %s)\n", $1, $2, $3, $4 }'
  by_class="$by_class, $class $(of "class $class")"
done
for kind in bug extra cheat unseen; do
  [ -z "${rows[$kind]:-}" ] || printf 'all of kind %s\t%s\t\t\n' "$kind" "$(of $kind)" >> "$out/totals.tsv"
done
printf 'kernel bugs %s (patches: fp32 %s, mixed %s), harness cheats %s, unseen bugs %s%s\n' \
  "$(of bug)" "$(patches_of fp32)" "$(patches_of mixed)" "$(of cheat)" "$(of unseen)" "${by_class:+ (${by_class#, })}"
for kind in bug extra cheat unseen; do
  [ "${rows_caught[$kind]:-0}" -eq "${rows[$kind]:-0}" ] || exit 1
done
[ $chosen -gt 0 ] || { echo "score.sh: no patch is selected" >&2; exit 1; }
selects_everything || exit 0
[ "${rows[bug]:-0}" -ge 36 ] && [ "${rows[cheat]:-0}" -ge 12 ] && [ "${rows[unseen]:-0}" -ge 40 ]
