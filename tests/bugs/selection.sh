# Which patches and cheats a run is about; sourced by run_bugs.sh and score.sh, which take the same two options.
#   --only 101-140,7   patches of these numbers        --class "late steps"   rows of this class of table.tsv
# Both may be given more than once; a patch must satisfy each kind that is given. Without them everything is selected.
only=()
classes=()

take_only() {
  local part
  for part in ${1//,/ }; do
    [[ "$part" =~ ^[0-9]+(-[0-9]+)?$ ]] || { echo "--only $1: expected numbers or ranges such as 101-140,7" >&2; exit 2; }
    only+=("$part")
  done
}
take_class() {
  cut -f6 "$here/table.tsv" | grep -qxF -- "$1" || {
    echo "--class $1: expected one of: $(grep -v '^#' "$here/table.tsv" | cut -f6 | sort -u | paste -sd, | sed 's/,/, /g')" >&2
    exit 2
  }
  classes+=("$1")
}

selects_class() {
  local one
  [ ${#classes[@]} -eq 0 ] && return
  for one in "${classes[@]}"; do [ "$one" = "$1" ] && return; done
  return 1
}
selects_number() {
  local part number=$((10#$1))
  [ ${#only[@]} -eq 0 ] && return
  for part in "${only[@]}"; do [ $number -ge $((10#${part%-*})) ] && [ $number -le $((10#${part#*-})) ] && return; done
  return 1
}
# Cheats that are trainers of gate_test have no number: --only leaves them out.
selects_cheats() { [ ${#only[@]} -eq 0 ] && selects_class harness; }
selects_everything() { [ ${#only[@]} -eq 0 ] && [ ${#classes[@]} -eq 0 ]; }

# The selected patches, one a line, in the order of the table: name|class|trainer.
selected_patches() {
  local kind row what fp32 mixed class cell stem trainer
  while IFS=$'\t' read -r kind row what fp32 mixed class; do
    case "$kind" in bug | extra | cheat | unseen) ;; *) continue ;; esac
    selects_class "$class" || continue
    for cell in "fp32 $fp32" "mixed $mixed"; do
      trainer=${cell%% *}
      cell=${cell#* }
      case "$cell" in -*) continue ;; esac
      for stem in ${cell//,/ }; do
        selects_number "${stem%%-*}" && echo "$stem|$class|$trainer"
      done
    done
  done < "$here/table.tsv"
}
