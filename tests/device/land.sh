#!/usr/bin/env bash
# Puts waiting patches into the tree, with what their pages then say (experiments/studies/landing/README.md):
#   tests/device/land.sh --list     the names of those that wait, in the order of docs/study/mixed-chain.md
#   tests/device/land.sh [--reject] NAME…   applies each, takes its row out of the chain's waiting table, applies landing/NAME.patch, and removes both
#   --reject    where one before it was left out: hunks of landing/NAME.patch that do not apply become FILE.rej, to be put in by hand
# All of it lands in the index, none of it is committed. Exit 0: done. 1: a patch does not apply, and the tree is what it was.
# 2: wrong names, or tracked files that differ from HEAD.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 2
studies=experiments/studies chain=docs/study/mixed-chain.md
usage="usage: land.sh --list | [--reject] NAME…"

waiting() {
  sed -n '/^Written, and waiting/,$p' $chain | grep -o "studies/[a-z0-9-]*\.yaml" | sed 's|studies/||; s|\.yaml$||' | while read -r name; do
    [ -f "$studies/$name.patch" ] && echo "$name"
  done
}
# Of the waiting table alone; the first table may have a row of the same experiment.
remove_row() { sed -i "/^Written, and waiting/,\$ { /^| .*studies\/$1\.yaml/d }" $chain; }
pages() {
  git apply --index "$1" && return
  [ -n "$reject" ] || return
  git apply --reject "$1"
  git apply --numstat "$1" | cut -f3 | while read -r file; do git add -A -- "$file" || true; done
}
land() {
  git apply --index "$studies/$1.patch" && remove_row "$1" && git add $chain && pages "$studies/landing/$1.patch" &&
    git rm -q "$studies/$1.patch" "$studies/landing/$1.patch"
}

[ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }
if [ "$1" = --list ]; then
  waiting
  exit 0
fi
reject=
[ "$1" != --reject ] || { reject=1; shift; }
[ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }
for name; do
  [ -f "$studies/$name.patch" ] && [ -f "$studies/landing/$name.patch" ] || {
    echo "land.sh: no $studies/$name.patch with its landing/$name.patch; waiting: $(waiting | paste -sd' ')" >&2
    exit 2
  }
done
git diff --quiet HEAD -- || { echo "land.sh: commit or stash first, because a patch that fails takes tracked files back to HEAD" >&2; exit 2; }
for name; do
  land "$name" || {
    git reset -q --hard HEAD
    echo "land.sh: $name does not apply behind those before it; nothing has landed" >&2
    exit 1
  }
  echo "landed $name"
done
