#!/usr/bin/env bash
# The include chains run left to right: a file may include headers of its own stage and of stages of a lower rank. cmake/Stage.cmake
# refuses links that break this; a header without a source needs no link, so the includes themselves are read here.
#   check_includes.sh TREE EXCEPTIONS
# The ranks come from the tree's calls of stepscope_stage. A file belongs to the stage that lists it (a header to the one that lists its
# source), else to those of its folder. EXCEPTIONS holds lines "FILE INCLUDED # reason"; one that is no longer needed is an error.
set -euo pipefail
tree=$(cd "$1" && pwd)
exceptions=$(realpath "$2")
cd "$tree"
find . \( -name build -o -name .git -o -name .deps -o -path ./tests -o -path ./baselines \) -prune -o \
  \( -name CMakeLists.txt -o -name '*.cmake' -o -name '*.cpp' -o -name '*.cu' -o -name '*.h' -o -name '*.cuh' \) -print | sed 's|^\./||' | sort |
awk -v exceptions="$exceptions" '
function folder_of(path) { return match(path, /.*\//) ? substr(path, 1, RLENGTH - 1) : "." }
function stem(path) { sub(/\.[a-z]+$/, "", path); return path }
# The stages of a file: "name " of the one that lists it, or "name name " of all in the nearest folder that has any.
function stages_of(path,   f) {
  if (stem(path) in listed) return listed[stem(path)]
  for (f = folder_of(path); f != "."; f = folder_of(f)) if (f in in_folder) return in_folder[f]
  return ""
}
# `part`: a .cmake file, which the folder above includes, so that its paths may begin there.
function declare(text, folder, part,   n, word, i, name, sources) {
  gsub(/#[^\n]*/, "", text); gsub(/[()]/, " ", text)
  n = split(text, word, /[ \t\n]+/)
  for (i = 1; i <= n; ++i) {
    if (word[i] == "" ) continue
    if (name == "") { name = word[i]; in_folder[folder] = in_folder[folder] name " "; continue }
    if (word[i] == "RANK") { rank[name] = word[i + 1] + 0; ++stages; continue }
    if (word[i] ~ /^(LINKS|PRIVATE_LIBS|PUBLIC_LIBS)$/) sources = 0
    if (sources && word[i] ~ /^[A-Za-z0-9_\/]+\.(cpp|cu)$/) {
      pending[folder "/" word[i]] = name
      if (part) pending[folder_of(folder) "/" word[i]] = name
    }
    if (word[i] == "SOURCES") sources = 1
  }
}
{ files[++count] = $0 }
END {
  for (i = 1; i <= count; ++i) {
    if (files[i] !~ /(CMakeLists\.txt|\.cmake)$/ || files[i] == "cmake/Stage.cmake") continue
    text = ""
    while ((getline line < files[i]) > 0) text = text line "\n"
    close(files[i])
    while ((at = index(text, "stepscope_stage(")) > 0) {
      text = substr(text, at + length("stepscope_stage("))
      end = index(text, ")")
      # "${x}" and generator expressions hold no parenthesis, so the first one ends the call.
      declare(substr(text, 1, end - 1), folder_of(files[i]), files[i] ~ /\.cmake$/)
    }
  }
  for (path in pending) listed[stem(path)] = pending[path] " "
  if (stages < 1) { print "no stage was found"; exit 1 }
  while ((getline line < exceptions) > 0) {
    if (line ~ /^[ \t]*(#|$)/) continue
    split(line, part, /[ \t]+/)
    if (line !~ /#[ \t]*[^ \t]/) { print exceptions ": without a reason: " line; bad = 1 }
    allowed[part[1] " " part[2]] = 1
  }
  for (i = 1; i <= count; ++i) {
    if (files[i] !~ /\.(cpp|cu|h|cuh)$/) continue
    mine = stages_of(files[i]); program = files[i] ~ /^cli\//
    if (mine == "" && !program) continue
    number = 0
    while ((getline line < files[i]) > 0) {
      ++number
      if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/) continue
      split(line, part, "\""); other = part[2]
      if (other ~ /^cli\//) {
        if (program) continue
        theirs = "cli "; lowest = 90
      } else {
        theirs = stages_of(other)
        if (theirs == "" || program) continue
        lowest = 1000; n = split(theirs, one, " ")
        for (k = 1; k <= n; ++k) if (rank[one[k]] < lowest) lowest = rank[one[k]]
      }
      ++checked
      highest = -1; same = 0; n = split(mine, one, " ")
      for (k = 1; k <= n; ++k) {
        if (rank[one[k]] > highest) highest = rank[one[k]]
        if (index(" " theirs, " " one[k] " ")) same = 1
      }
      if (same || lowest < highest) continue
      if ((files[i] " " other) in allowed) { used[files[i] " " other] = 1; continue }
      printf "%s:%d: %s(rank %d) may not include %s of %s(rank %d): the flow runs left to right (docs/architecture.md)\n", files[i], number, mine, highest, other, theirs, lowest
      bad = 1
    }
    close(files[i])
  }
  for (pair in allowed) if (!(pair in used)) { print exceptions ": no longer needed: " pair; bad = 1 }
  if (checked < 1) { print "no include was checked"; exit 1 }
  printf "%d stages, %d includes of other files checked\n", stages, checked
  exit bad
}'
