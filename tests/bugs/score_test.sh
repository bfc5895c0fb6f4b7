#!/usr/bin/env bash
# The score counts what it should, shown on made-up outputs: all caught is the full score; a program that passed, a wrong check, a crash,
# a cheat that was not run, and every check that is taken away each lower it.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
out=$folder

for patch in "$here"/*.patch; do
  name=$(basename "$patch")
  program="$out/gate_bug_${name%%-*}"
  check=$(sed -n 's/^Caught-by: //p' "$patch" | head -1)
  echo "failed: $check | tensor | 2 > 1 norm | " > "$program"
  code=1
  [ "${check%% *}" = racecheck ] && code=9
  echo $code > "$program.code"
done
# As gate_test prints them; the checks are those of cheating_trainer.h.
tr '\n' ' ' < "$here/../gate/cheating_trainer.h" | grep -oE '\{"[^"]+", *"[^"]+",' |
  sed 's/{"\([^"]*\)", *"\([^"]*\)",/cheat\t\1\t\2\tcaught/' > "$out/cheats"
score() { "$here/score.sh" "$out" "$@" | tail -1; }
full=$(set -o pipefail; score) || complain "all caught does not exit 0"
unseen=$(grep -c '^unseen' "$here/table.tsv")
case "$full" in "kernel bugs 36/36 "*"harness cheats 12/12, unseen bugs $unseen/$unseen (sizes "*) ;; *) complain "all caught gives '$full'" ;; esac

lowers() {  # WHAT: the score is below the full one and the exit code says so
  local now
  now=$(set -o pipefail; score "${@:2}") && complain "$1 exits 0"
  [ "$now" != "$full" ] || complain "$1 does not lower the score"
}
# NUMBER TEXT CODE WHAT
with() {
  local program="$out/gate_bug_$1"
  cp "$program" "$out/kept"
  cp "$program.code" "$out/kept.code"
  echo "$2" > "$program"
  echo "$3" > "$program.code"
  lowers "$4"
  mv "$out/kept" "$program"
  mv "$out/kept.code" "$program.code"
}
with 01 passed 0 "a bug that passed the gate"
with 01 "failed: some other check | x" 1 "a bug that another check caught"
with 51 "" 124 "a gate that did not end"
with 07 "failed: racecheck" 1 "racecheck without a hazard"
with 101 passed 0 "an unseen bug that passed the gate"
with 101 "" 139 "a gate that crashed on an unseen bug"
with 201 "" 124 "a gate that did not end on an unseen bug"
# What counts for an unseen bug: any check, also when the gate did not end after it, and a hazard where racecheck was run.
keeps() {  # NUMBER TEXT CODE WHAT: the score stays
  local program="$out/gate_bug_$1" now
  cp "$program" "$out/kept"
  cp "$program.code" "$out/kept.code"
  echo "$2" > "$program"
  echo "$3" > "$program.code"
  now=$(set -o pipefail; score) || complain "$4 does not exit 0"
  [ "$now" = "$full" ] || complain "$4 changes the score to '$now'"
  mv "$out/kept" "$program"
  mv "$out/kept.code" "$program.code"
}
keeps 101 "failed: some other check | x" 1 "an unseen bug that another check caught"
keeps 101 "failed: some check | x" 124 "an unseen bug that was caught before the gate was ended"
echo "RACECHECK SUMMARY: 1 hazard" > "$out/gate_bug_139.race"
echo 9 > "$out/gate_bug_139.race.code"
keeps 139 passed 0 "an unseen bug that racecheck caught"
echo 0 > "$out/gate_bug_139.race.code"
with 139 passed 0 "an unseen bug that neither the gate nor racecheck caught"
rm "$out/gate_bug_139.race" "$out/gate_bug_139.race.code"
# A selection counts itself only.
expect() {  # TEXT OPTION...: the score of that selection
  local want=$1 now
  now=$(set -o pipefail; score "${@:2}") || complain "${*:2} does not exit 0"
  [[ "$now" = $want ]] || complain "${*:2} gives '$now', expected '$want'"
}
expect "kernel bugs 0/0 *cheats 0/0, unseen bugs 3/3 (sizes 3/3)" --only 101-103
expect "kernel bugs 1/1 *cheats 0/0, unseen bugs 1/1 (sizes 1/1)" --only 07,201
late=$(awk -F'\t' '$1 == "unseen" && $6 == "late steps"' "$here/table.tsv" | wc -l)
expect "kernel bugs 0/0 *cheats 0/0, unseen bugs $late/$late (late steps $late/$late)" --class "late steps"
expect "kernel bugs 0/0 *cheats 12/12, unseen bugs 0/0" --class harness
"$here/score.sh" "$out" --only 999 > /dev/null 2>&1 && complain "a selection of nothing exits 0"
"$here/score.sh" "$out" --class nothing 2> /dev/null > /dev/null && complain "a class that is not there exits 0"
sed -i.kept 1d "$out/cheats"
lowers "a cheat that was not run"
mv "$out/cheats.kept" "$out/cheats"
checks=0
while read -r check; do
  lowers "taking away '$check'" --without "$check"
  checks=$((checks + 1))
done < <({ sed -n 's/^Caught-by: //p' "$here"/*.patch; cut -f3 "$out/cheats"; } | sort -u)
[ "$checks" -ge 12 ] || complain "only $checks checks were taken away"
[ $problems -eq 0 ] && echo "$full; each of $checks checks lowers it"
exit $problems
