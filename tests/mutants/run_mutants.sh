#!/usr/bin/env bash
# Runs the one-line changes of host code in mutants.tsv and prints how many the tests notice:
#   tests/mutants/run_mutants.sh BUILD [--only REGEX]... [--draw N [--seed S]] [--rest] [-j N] [--built]
#   tests/mutants/run_mutants.sh --check        only: does every change still apply?
# BUILD is a ninja folder configured with CUDA (some tests include its headers); only the programs that are needed are built in it. A run of all of them
# writes score.tsv; --rest runs those that it does not show as caught. Exit 0: at least 95% were caught. 1: fewer. 2: the list or the build does not fit.
set -eu
command -v python3 > /dev/null || { echo "run_mutants.sh: python3 is needed" >&2; exit 2; }
exec python3 "$(dirname "$0")/mutants.py" "$@"
