#!/usr/bin/env bash
# ranks_evidence.py with a stub in the place of stepscope: which commands it runs, what it makes of their numbers, and that a failed command, a missed
# bound and a time limit are said and exit 1.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../in_folder.sh"
unset CUDA_VISIBLE_DEVICES  # of the caller, who may have chosen one GPU
cat >"$folder/stepscope" <<'STUB'
#!/usr/bin/env python3
import json, os, sys, time
a = sys.argv[1:]
value = lambda flag: a[a.index(flag) + 1]
open(os.environ["CALLED"], "a").write(os.environ.get("CUDA_VISIBLE_DEVICES", "-") + " " + " ".join(a) + "\n")
gpu, several = os.environ.get("CUDA_VISIBLE_DEVICES"), "--gpus" in a
if os.environ.get("BREAKS") == a[0] or (os.environ.get("BREAKS") == "ranks" and several):
    print("it broke")
    sys.exit(3)
if a[0] == "train" and "--run-json" not in a:
    silent = "--exchange-nothing" in a
    ms = 22 if silent else 25 if several else {"0": 18, "1": 20}[gpu]
    begin = time.monotonic()
    for n in range(1000):
        time.sleep(max(0, begin + n * ms * 1e-3 - time.monotonic()))
        print("step", n, flush=True)
        if silent and n % 2 == 0:  # rank 1 takes twice as long
            print("[rank 1] step", n // 2, flush=True)
elif a[0] == "train":
    zero = "communication=zero1_ahead" in a
    for file in (value("--run-json"), value("--run-json").replace(".json", ".rank1.json")):
        moments = 500 << 20 if zero else int(os.environ.get("MOMENTS", 1000 << 20))
        used = moments + (100 << 20) + int(os.environ.get("EXTRA", 0))
        json.dump({"memory": [{"name": "optimizer state", "bytes": moments}, {"name": "gradients", "bytes": 100 << 20}], "memory_used_bytes": used},
                  open(file, "w"))
elif a[0] == "profile":
    # One GPU: 6 of work, 2 of update, 1 idle in 9 ms; two ranks that exchange nothing: 1 of update in 8 ms; two ranks: 0.5 more work, 0.6 exposed.
    # So 9.1 ms, and 0.6 is lost to waiting.
    silent, turn = "--exchange-nothing" in a, "-1.json" in value("--out")
    work, update, exposed = (6.0, 1.0, 0.0) if silent else (6.5, 1.0, 0.6) if several else (6.0, 2.0, 0.0)
    step = 8.0 if silent else 9.1 if several else (9.0 if gpu == "1" else 8.5)
    passes = [{"name": "forward", "time_ns": 2e6}, {"name": "backward", "time_ns": (work - 2) * 1e6}, {"name": "optimizer", "time_ns": update * 1e6},
              {"name": "communication", "time_ns": float(os.environ.get("EXPOSED", f"{exposed},{exposed}").split(",")[turn]) * 1e6 if several and not silent else 0}]
    d = {"timing": {"step_time_ns": {"median": step * 1e6}}, "totals": {"idle_ns": 1e6, "unattributed_ns": 0}, "passes": passes, "missing": [],
         "launches": [{"activity": "kernel", "name": "qkv", "pass": "forward", "dram_read_bytes": 1}, {"activity": "copy", "name": "copy"},
                      {"activity": "kernel", "name": "wait", "pass": "communication"}]}
    d["environment"] = {"uuid": "GPU-" + ("0" if silent else os.environ.get("OF", "1") if several else gpu)}
    if several:
        # Rank 0's GPU is 1 ms faster where nobody waits, and the silent document shows its passes.
        faster = 1 if silent else 0
        d["ranks"] = [{"rank": r, "uuid": f"GPU-{r}", "step_time_ns": (step - faster * (r == 0)) * 1e6, "idle_ns": 1e6} for r in (0, 1)]
        d["rank_passes"] = [{"rank": r, "pass": p["name"], "time_ns": p["time_ns"] - (faster * 1e6 if r == 0 and p["name"] == "forward" else 0)}
                            for r in (0, 1) for p in passes]
        mine = [p for p in d["rank_passes"] if f"GPU-{p['rank']}" == d["environment"]["uuid"]]
        d["passes"] = [{"name": p["pass"], "time_ns": p["time_ns"]} for p in mine]
        d["timing"]["step_time_ns"]["median"] = d["ranks"][mine[0]["rank"]]["step_time_ns"]
        d["world"] = {"hidden_ns": 1.2e6}
        d["collectives"] = [{"kind": "all_gather", "type": "bf16", "bytes": 80}, {"kind": "all_gather", "type": "fp64"}]
    if os.environ.get("UNCOUNTED"):
        d["missing"] = [{"name": "ranks_not_counted"}]
    json.dump(d, open(value("--out"), "w"))
elif a[0] == "doctor":
    open(value("--links"), "w").write("{}")
    print("by peer 300 GB/s")
elif a[0] == "scaling":
    t = float(os.environ.get("PREDICTED", 9.2)) * 1e6
    print("a note\n" + json.dumps({"steps": [{"time_ns": t, "work_ns": 8e6, "tail_ns": 1e5, "head_ns": 2e5, "norm_ns": 3e4, "inflation_ns": 4e5, "awake_ns": 1e5,
          "hidden_ns": 1e6, "straggler_ns": 1e4, "collectives": [{"kind": os.environ.get("PLANS", "all_gather_in_place"), "type": "bf16", "bytes": 80},
          {"kind": "all_gather", "type": "fp64", "bytes": 16}]}]}))
STUB
mkdir "$folder/bin"
cat >"$folder/bin/nvidia-smi" <<'STUB'
#!/bin/sh
while :; do printf '0, 690.0, 1700\n1, [N/A], 1710\n1, 650.0, 1720\n'; sleep 0.1; done
STUB
chmod +x "$folder/stepscope" "$folder/bin/nvidia-smi"
PATH=$folder/bin:$PATH
export CALLED=$folder/called
evidence() { rm -rf "$folder/out" "$CALLED"; "$here/ranks_evidence.py" "$folder/stepscope" --out "$folder/out" --seconds 1.4 "$@" >"$folder/said" 2>&1; }
said() { grep -qE -- "$1" "$folder/said" || complain "does not say '$1': $(cat "$folder/said")"; }
value() { python3 -c "import json,sys; d = json.load(open('$folder/out/$1.json')); print($2)"; }

# 20 ms of the slower GPU against 25: 80%, as exactly as a busy machine sleeps; of the times that were seen to the last digit.
evidence alone --cases mixed:4 || complain "alone exits $?: $(cat "$folder/said")"
[ "$(value alone '65 < d[0]["of_slower_alone_pct"] < 95 and
  abs(sum(max(run) for run in d[0]["alone_ms"]) / 2 / d[0]["two_ranks_ms"] * 100 - d[0]["of_slower_alone_pct"]) < 1e-9')" = True ] ||
  complain "not the slower GPU's time over that of ranks: $(cat "$folder/out/alone.json")"
said 'mixed B=4 .*>= 97.0%'
[ "$(value alone '35 < d[0]["exchanging_nothing_ms"] < 65')" = True ] || complain "not the slower rank of those that exchange nothing: $(cat "$folder/out/alone.json")"
said 'mixed B=4, GPU 1 +650 +650 +650 +1720 +1720 +1720'
[ "$(grep -c -- "--gpus 2 --steps" "$CALLED") $(grep -c -- '--gpus 2 --exchange-nothing' "$CALLED")" = "1 1" ] && [ "$(grep -c '^[01] train' "$CALLED")" = 4 ] || complain "not alone, ranks, alone: $(cat "$CALLED")"
BREAKS=ranks evidence alone --cases mixed:4 && complain "ranks that do not train exit 0"
said 'two ranks: ended with 3: it broke'

evidence profile --batches 4 || complain "profile exits $?: $(cat "$folder/said")"
[ "$(value profile 'round(d[0]["lost_to_communication_ms"], 6), round(d[0]["exposed_ms"], 6), round(d[0]["before_ms"], 6)')" = "0.6 0.6 8.0" ] ||
  complain "another loss: $(cat "$folder/out/profile.json")"
EXPOSED=0.5 evidence profile --batches 4 && complain "0.5 ms exposed of 0.6 lost exits 0"
said "B=4 .* 0.600 +0.500 +1.200 +-16.7%"
said 'exposed communication is not the loss of time'
EXPOSED=0.5,0.7 evidence profile --batches 4 --turns 2 || complain "the mean of two turns exits $?: $(cat "$folder/said")"
[ "$(value profile 'round(d[0]["exposed_ms"], 6), d[0]["turns"], round(d[0]["difference_error_ms"], 6)')" = "0.6 2 0.1" ] ||
  complain "not the mean of two turns: $(cat "$folder/out/profile.json")"
[ "$(sed 's/.*exchange-nothing.*/silent/; t; s/.*/two/' "$CALLED" | tr '\n' ' ')" = "silent two two silent " ] ||
  complain "the first is not another in each turn: $(cat "$CALLED")"
evidence profile --batches 4 --variant communication=all_reduce --variant a=b || complain "variants of the trainers exit $?: $(cat "$folder/said")"
[ "$(grep -c -- '--variant communication=all_reduce --variant a=b' "$CALLED") $(wc -l <"$CALLED")" = "2 2" ] || complain "not the variants for both: $(cat "$CALLED")"
evidence profile --turns 0; [ $? = 2 ] || complain "no turn does not exit 2"

evidence model --batches 4 || complain "model exits $?: $(cat "$folder/said")"
said 'by peer 300 GB/s'
said 'B=4 nccl .*\+1.10%'
grep -q -- 'scaling .*one1-b4.json .*--communicator nccl' "$CALLED" || complain "not predicted from the slower GPU: $(cat "$CALLED")"
[ "$(value model 'round(d[0]["measured_parts"]["before_ms"], 6)')" = 9.0 ] || complain "not the GPU of the ranks' document: $(cat "$folder/out/model.json")"
OF=0 evidence model --batches 4 || complain "model of GPU 0's passes exits $?: $(cat "$folder/said")"
said 'B=4 nccl +9.000 '
[ "$(value model 'round(d[0]["measured_parts"]["before_ms"], 6)')" = 8.5 ] || complain "GPU 0's passes less those of another GPU: $(cat "$folder/out/model.json")"
PREDICTED=9.5 evidence model --batches 4 && complain "4.4% off exits 0"
said '\+4.4%, asked are 3%'
PLANS=reduce_scatter evidence model --batches 4 && complain "collectives that nobody planned exit 0"
said 'collectives that the model does not plan'
BREAKS=doctor evidence model --batches 4 && complain "without a sweep exits 0"

evidence memory || complain "memory exits $?: $(cat "$folder/said")"
said 'zero1_ahead, rank 1 .* 600 .* 600 .*500'
EXTRA=30000000 evidence memory && complain "30 MB more than planned of 600 exit 0"
MOMENTS=900000000 evidence memory && complain "moments that are not halved exit 0"

evidence counters || complain "counters exits $?: $(cat "$folder/said")"
said 'nccl +2 +1 +0'
UNCOUNTED=1 evidence counters && complain "ranks that were not counted exit 0"
grep -q no-counters "$CALLED" && complain "counters are left out"

evidence --limit-s 1 && complain "no time exits 0"
said 'alone, mixed B=4: out of time'
evidence frobnicate; [ $? = 2 ] || complain "an unknown part does not exit 2"
exit $problems
