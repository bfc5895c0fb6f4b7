#!/usr/bin/env bash
# Puts one-line changes at random places of the host code and prints which of them no test notices:
#   tests/mutants/run_random_changes.sh FOLDER --make [--only PATH]... [-j N]            a copy of HEAD with a switch for each change, built
#   tests/mutants/run_random_changes.sh FOLDER [--draw N] [--seed S] [--only PATH]...    runs N of them; FOLDER/results.tsv keeps the answers
# FOLDER is outside of the tree. Needs libclang for Python (Debian: python3-clang-16) and what a build of the preset host needs. Nothing is
# written to the tree. What survives is either no change of what anybody sees or wants a test, and then a row in mutants.tsv.
set -eu
for python in python3 /usr/bin/python3; do
  if "$python" -c "import clang.cindex" 2> /dev/null; then exec "$python" "$(dirname "$0")/random_changes.py" "$@"; fi
done
echo "run_random_changes.sh: no python3 here can import clang.cindex; Debian and Ubuntu have it in python3-clang-16 or later" >&2
exit 3
