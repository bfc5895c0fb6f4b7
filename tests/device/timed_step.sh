# Sourced by scripts that make several measurements in one call: `timed_step FOLDER LIMIT STEP` runs the shell function STEP into FOLDER/STEP.log
# and adds its line to FOLDER/results.tsv: step, exit code (1 for any failure; 124: ended by the limit; -: not begun), seconds. Returns that
# code, 125 for "-". LIMIT: seconds since the script began after which nothing begins and what runs is ended, with all that it started; empty: none.
timed_step() {
  local folder=$1 limit=$2 step=$3 from=$SECONDS code=0 job
  if [ -n "$limit" ] && [ "$SECONDS" -ge "$limit" ]; then
    printf '%s\t-\t0\n' "$step" >>"$folder/results.tsv"
    return 125
  fi
  # In a group of its own, so that the limit ends everything that it started.
  set -m
  "$step" >"$folder/$step.log" 2>&1 &
  job=$!
  set +m
  if [ -n "$limit" ]; then
    while kill -0 $job 2>/dev/null && [ "$SECONDS" -lt "$limit" ]; do sleep 0.2; done
    if kill -0 $job 2>/dev/null; then
      kill -TERM -- -$job 2>/dev/null
      sleep 2
      kill -KILL -- -$job 2>/dev/null
      code=124
    fi
  fi
  wait $job 2>/dev/null || [ $code = 124 ] || code=1
  printf '%s\t%d\t%d\n' "$step" $code $((SECONDS - from)) >>"$folder/results.tsv"
  return $code
}
