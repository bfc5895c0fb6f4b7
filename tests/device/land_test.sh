#!/usr/bin/env bash
# land.sh on a copy of this tree, with the patches that wait in it: all of them land one behind the other, and one that fails leaves nothing behind.
#   land_test.sh [KEEP]     the copy with everything landed stays in folder KEEP
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
[ -e "$here/.git" ] || { echo "no git repository"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
problems=0
complain() {
  echo "land_test: $*"
  problems=1
}
tree=${1:-$folder/tree}
mkdir -p "$tree" && tree=$(cd "$tree" && pwd)
git -C "$here" ls-files -co --exclude-standard -z | (cd "$here" && while IFS= read -r -d '' f; do [ -f "$f" ] && printf '%s\0' "$f"; done | xargs -0 cp --parents -t "$tree")
as() { git -C "$tree" -c user.name=test -c user.email=test -c commit.gpgsign=false "$@"; }
as init -q && as add -A && as commit -qm before
land() { "$tree/tests/device/land.sh" "$@" >"$folder/said" 2>&1; }
status() { as status --porcelain; }

land --list
waiting=$(cat "$folder/said")
[ "$(sort <<<"$waiting")" = "$(cd "$tree/experiments/studies" && ls ./*.patch 2>/dev/null | sed 's|^\./||; s|\.patch$||' | sort)" ] ||
  complain "--list says '$waiting', which are not the patches in experiments/studies"
land
[ $? = 2 ] || complain "no name does not exit 2"
land no-such
[ $? = 2 ] || complain "an unknown name does not exit 2"

# A patch that fails behind one that does not, with files of its own.
printf 'one\n' >"$tree/file" && printf -- '- studies/a.yaml\n' >"$tree/row"
printf -- '--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n+two\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n' >"$tree/experiments/studies/good.patch"
printf -- '--- a/file\n+++ b/file\n@@ -1 +1 @@\n-none\n+three\n' >"$tree/experiments/studies/bad.patch"
for name in good bad; do printf -- '--- a/row\n+++ b/row\n@@ -1 +1,2 @@\n - studies/a.yaml\n+%s\n' "- $name" >"$tree/experiments/studies/landing/$name.patch"; done
as add -A && as commit -qm "two more"
land good bad
[ $? = 1 ] || complain "a patch that does not apply does not exit 1"
[ -z "$(status)" ] && [ "$(cat "$tree/file")" = one ] && [ ! -e "$tree/new" ] || complain "a patch that does not apply leaves '$(status)'"
echo changed >>"$tree/file"
land good
[ $? = 2 ] && [ "$(tail -n 1 "$tree/file")" = changed ] || complain "a tree with changes of its own is not refused"
as checkout -q -- file
land good || complain "a good patch does not land: $(cat "$folder/said")"
[ "$(cat "$tree/file" "$tree/row" "$tree/new" | paste -sd' ')" = "two - studies/a.yaml - good new" ] || complain "the good patch landed as '$(status)'"
[ ! -e "$tree/experiments/studies/good.patch" ] && [ ! -e "$tree/experiments/studies/landing/good.patch" ] || complain "a landed patch still waits"
as reset -q --hard
# Its pages have changed meanwhile: the code lands, and what is left for a hand is told.
printf 'other\n' >"$tree/row" && as commit -qam "another row"
land good
[ $? = 1 ] && [ -z "$(status)" ] || complain "pages that do not apply leave '$(status)'"
land --reject good || complain "--reject exits $?: $(cat "$folder/said")"
[ -f "$tree/row.rej" ] && [ "$(cat "$tree/file" "$tree/row" | paste -sd' ')" = "two other" ] || complain "--reject leaves '$(status)'"
as reset -q --hard HEAD~2 && rm -f "$tree/row.rej"

if [ -n "$waiting" ]; then
  # shellcheck disable=SC2086
  land $waiting || complain "the waiting patches do not land behind each other: $(cat "$folder/said")"
  [ -z "$(ls "$tree/experiments/studies/" | grep '\.patch$')$(ls "$tree/experiments/studies/landing" | grep '\.patch$')" ] || complain "patches are left"
  [ -z "$("$tree/tests/device/land.sh" --list)" ] || complain "still waiting: $("$tree/tests/device/land.sh" --list)"
  grep -l '^ *patch: ' "$tree"/experiments/studies/*.yaml && complain "an experiment names a patch that has landed"
  for name in $waiting; do
    rows=$(grep -c "^| .*studies/$name\.yaml" "$tree/docs/study/mixed-chain.md")
    [ "$rows" = "$([ -f "$tree/experiments/studies/$name.yaml" ] && echo 1 || echo 0)" ] || complain "$name has $rows rows in the chain"
  done
  # Patches of seeded bugs are adjusted by several of them.
  for bug in "$tree"/tests/bugs/*.patch "$tree"/tests/ranks/bugs/*.patch; do
    (cd "$tree" && git apply --check "$bug") 2>"$folder/said" || complain "$(basename "$bug"): $(head -n 1 "$folder/said")"
  done
  python3 "$tree/tests/mutants/mutants.py" --check >"$folder/said" 2>&1 || complain "tests/mutants: $(tail -n 3 "$folder/said")"
fi
exit $problems
