#!/bin/sh
# How often does the gate refuse a right trainer? Every configuration of both GPU trainers, many seeds, several processes at a time.
# Usage: false_alarms.sh BUILD [SEEDS] [JOBS] [OUT]. Needs a GPU. OUT (default BUILD/false-alarms) gets one JSON file per configuration.
# Exit 1 when a seed was refused.
set -eu
build=$1 seeds=${2:-50} jobs=${3:-8} out=${4:-$1/false-alarms}
program=$build/bin/stepscope
cores=$(nproc)
threads=$((cores / jobs)); [ "$threads" -ge 1 ] || threads=1
mkdir -p "$out"
rm -f "$out"/*.json "$out"/*.err
"$program" gate --list-configurations > "$out/configurations.txt"
export program seeds out
export OMP_NUM_THREADS=$threads
tr '\n' '\0' < "$out/configurations.txt" | xargs -0 -P "$jobs" -I {} sh -c '
  file=$out/$(printf %s "$1" | tr " =+" "___")
  "$program" gate --seeds "$seeds" --configurations "$1" --json > "$file.json" 2> "$file.err" || true' sh {}
python3 - "$out" <<'EOF'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
names = (folder / "configurations.txt").read_text().split("\n")[:-1]
seen, bad = [], 0
print(f"{'configuration':<44} seeds refused  false alarms  worst check")
for file in sorted(folder.glob("*.json")):
    try:
        document = json.loads(file.read_text())
    except ValueError:
        print(f"{file.stem}: no result: {file.with_suffix('.err').read_text().strip()[-200:]}")
        bad += 1
        continue
    for c in document["configurations"]:
        seen.append(c["configuration"])
        if "cannot_run" in c:
            print(f"{c['configuration']:<44} not checked: {c['cannot_run'][:160]}")
            continue
        share = lambda k: float("inf") if k["worst_share_of_budget"] is None else k["worst_share_of_budget"]
        worst = max(c["checks"], key=share)
        bad += c["refused"] > 0
        print(f"{c['configuration']:<44} {c['seeds']:>5} {c['refused']:>7}  {c['false_alarm_rate']:>12.1e}  "
              f"{worst['name']}: {100 * share(worst):.0f}% of its budget ({worst['tensor']}, seed {worst['seed']})")
missing = [n for n in names if n not in seen]
if missing:
    print("no result:", ", ".join(missing))
sys.exit(1 if bad or missing else 0)
EOF
