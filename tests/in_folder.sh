# Sourced by tests that are shell scripts: a folder of their own that goes with them, complaints, and programs that stand for others.
#   $folder, removed at the end   complain TEXT…: prints it and sets problems=1   stub FILE TEXT: an executable sh script
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
problems=0
complain() {
  echo "$(basename "$0" .sh): $*"
  problems=1
}
stub() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
