#!/usr/bin/env bash
# clang-format would change no tracked C++ or CUDA file; seeded bugs, frozen baselines and what is there to be wrong are left out.
#   check_format.sh TREE      exit 77 (skipped) without clang-format or with one of another major version, which formats otherwise
set -euo pipefail
wanted=14
cd "$1"
found=$(clang-format --version 2>/dev/null | grep -oE 'version [0-9]+' | grep -oE '[0-9]+') || { echo "no clang-format"; exit 77; }
[ "$found" = "$wanted" ] || { echo "clang-format $found; the tree is formatted by version $wanted"; exit 77; }
mapfile -t files < <(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' ':!tests/bugs' ':!baselines')
[ ${#files[@]} -gt 0 ] || { echo "git lists no file"; exit 1; }
clang-format --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are formatted"
