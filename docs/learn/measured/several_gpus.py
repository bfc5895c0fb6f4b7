#!/usr/bin/env python3
"""Makes several-gpus.json, the record behind chapter 8: several_gpus.py REVISION=DIST_GPU_FOLDER … REVISION=DIST_PROFILE_FOLDER

A DIST_GPU folder holds steps.jsonl, lines of `rank_bench steps`. The DIST_PROFILE folder, the last argument, holds the documents of
`stepscope profile` (b4_one.json, b4.json, b4_zero1.json, b64.json), the sweep of `doctor --gpus 2` (links.json) and the table of
`stepscope scaling` (scaling_b4.txt). The record keeps what the chapter's tables show.

At 85373a1 the bench ran all_reduce_overlapped twice for each batch, the second time presumably with another limit of NCCL's blocks,
which its line does not name; that line is left out.
"""
import json
import pathlib
import sys


def steps(file):
    """Runs of the mixed trainer; of lines that say the same, only those of a run without ranks are kept twice (first and last)."""
    rows, seen = [], set()
    for line in file.read_text().splitlines():
        d = json.loads(line)
        words = [w for w in d["run"].split() if w != "alone"]
        if words[0] != "mixed" or (d["ranks"] and d["run"] in seen):
            continue
        seen.add(d["run"])
        ms = d.get("ms_mean_of_ranks", [d["ms_mean"]])  # older lines: of rank 0
        rows.append({"way": " ".join(words[3:]) if d["ranks"] else "", "batch": int(words[1]), "ms": ms, "ms_median": d["ms_median"],
                     "steps": d["steps"], "planned_mib": d["planned_mib"]})
    return rows


def collectives(document):
    keys = ("kind", "op", "bucket", "bytes", "time_ns", "transfer_ns", "exposed_ns", "hidden_ns")
    return [{k: c[k] for k in keys if k in c} for c in document["collectives"]]


def times(document):
    out = {f"{o['pass']} {o['op']}": o["time_ns"] for o in document["ops"] if o["pass"] != "communication"}
    return {"step_ns": document["timing"]["step_time_ns"]["median"], "device_ns": document["totals"]["time_ns"],
            "idle_ns": document["totals"]["idle_ns"], "ops": out}


def ranks(document):
    keys = ("rank", "work_ns", "exposed_ns", "hidden_ns", "exposed_wait_ns", "late_ns", "sm_clock_mhz", "power_w")
    return [{k: r[k] for k in keys} for r in document["ranks"]]


def dumps(value, indent=0):
    """JSON with one line for each innermost object."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(v, (dict, list)) for v in inner):
        return json.dumps(value)
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        body = [f"{pad}{json.dumps(k)}: {dumps(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(body) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + (json.dumps(v) if "ms" in v else dumps(v, indent + 1)) for v in value) + "\n" + " " * indent + "]"


def main():
    *benches, profile = [a.split("=", 1) for a in sys.argv[1:]]
    folder = pathlib.Path(profile[1])
    read = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("b4_one", "b4", "b4_zero1", "b64", "links")}
    keys = ("kind", "type", "small_latency_ns", "latency_ns", "bus_bytes_per_s")
    predicted = (folder / "scaling_b4.txt").read_text().splitlines()
    record = {
        "schema": "stepscope.several_gpus/1",
        "device": "two of the four " + read["b4"]["environment"]["gpu"] + " of one host",
        "driver": read["b4"]["environment"]["versions"]["cuda_driver"],
        "communicator": read["links"]["communicator"],
        "at": read["links"]["measured_at"],
        "setup": {"trainer": "mixed", "model": "d12", "seq_len": read["b4"]["run"]["seq_len"]},
        "benches": [{"revision": revision, "rows": steps(pathlib.Path(where) / "steps.jsonl")} for revision, where in benches],
        "profile_revision": profile[0],
        "links": [{k: f[k] for k in keys} for f in read["links"]["fits"]],
        "collectives": {"all_reduce_overlapped": collectives(read["b4"]), "zero1": collectives(read["b4_zero1"])},
        "one_gpu": times(read["b4_one"]),
        "two_ranks": {**times(read["b4"]), **{k: read["b4"]["world"][k] for k in ("communication_ns", "exposed_ns", "hidden_ns")}},
        "zero1": {**times(read["b4_zero1"]), **{k: read["b4_zero1"]["world"][k] for k in ("communication_ns", "exposed_ns", "hidden_ns")}},
        "ranks": {"4": ranks(read["b4"]), "64": ranks(read["b64"])},
        "scaling": dict(zip(predicted[0].replace("step ms", "step_ms").replace("all comm.", "all_comm").split(), predicted[1].split())),
    }
    text = dumps(record)
    (pathlib.Path(__file__).resolve().parent / "several-gpus.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
