#!/usr/bin/env python3
"""Holds a profile document against Nsight Compute on the same step, kernel by kernel, by launch position.

  ncu --clock-control none --cache-control none --csv --page raw --print-units base \
      --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed \
      stepscope train … --steps 2 > ncu.csv
  compare_with_ncu.py profile.json ncu.csv [--allow 0.01]

The last step in the ncu file is compared. Limits of a launch: DRAM bytes within 3 % or 1 MB, tensor-active within 1 point, duration within 5 %
for kernels above 20 us. Exit 0: no larger share of the launches than --allow is outside of a limit. 1: a larger one is. 2: a file cannot be
read, lacks what is compared, or is of another step: grids must agree launch by launch.
Needs only Python's standard library; used on the GPU machine, never to build or run stepscope.
"""
import argparse
import csv
import json
import statistics
import sys

METRICS = ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
           "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"]


class InputError(Exception):
    pass


def text_of(path):
    try:
        with open(path, newline="") as f:
            return f.read()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: {getattr(e, 'strerror', None) or e}") from None


def ncu_rows(path):
    """[{name, grid, and each of METRICS in base units}] of all launches."""
    lines = text_of(path).splitlines()
    begin = next((i for i, l in enumerate(lines) if l.startswith('"ID","Process ID"')), None)
    if begin is None:
        raise InputError(f"{path}: no ncu CSV table in it")
    reader = csv.DictReader(lines[begin:])
    for column in ("Kernel Name", "Grid Size", *METRICS):
        if column not in reader.fieldnames:
            raise InputError(f"{path}: no column {column}, expected those of the ncu command in --help")
    next(reader, None)  # units
    try:
        return [{"name": r["Kernel Name"], "grid": [int(x) for x in r["Grid Size"].strip("()").split(",")],
                 **{m: float(r[m].replace(",", "")) for m in METRICS}} for r in reader]
    except (ValueError, AttributeError) as e:  # AttributeError: a line that ends early
        raise InputError(f"{path}: line {begin + reader.line_num}: {e}") from None


def kernels_of(path):
    """The kernel launches of a profile document, each with its grid, time and DRAM bytes."""
    try:
        launches = [l for l in json.loads(text_of(path))["launches"] if l.get("activity", "kernel") == "kernel"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: no launches, expected a profile document of a run with counters") from None
    for i, l in enumerate(launches):
        for field in ("name", "grid", "time_ns", "dram_read_bytes", "dram_write_bytes"):
            if field not in l:
                raise InputError(f"{path}: launch {i}, {l.get('name', '?')}, has no {field}; expected a run with counters")
    if not launches:
        raise InputError(f"{path}: no kernel was launched")
    return launches


def same_step(document, ncu_csv):
    """(launches, ncu's rows of its last step), position by position."""
    launches = kernels_of(document)
    rows = ncu_rows(ncu_csv)[-len(launches):]
    if len(rows) != len(launches):
        raise InputError(f"{document} has {len(launches)} kernels a step, {ncu_csv} recorded {len(rows)}")
    for i, (l, r) in enumerate(zip(launches, rows)):
        if l["grid"] != r["grid"]:
            raise InputError(f"launch {i}: {l['name']} has grid {l['grid']}, ncu's {r['name']} has {r['grid']}: not the same step")
    return launches, rows


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("document")
    a.add_argument("ncu_csv")
    a.add_argument("--allow", type=float, default=0.0, help="share of launches that may lie outside a limit")
    o = a.parse_args()
    try:
        launches, rows = same_step(o.document, o.ncu_csv)
    except InputError as e:
        print(f"compare_with_ncu.py: {e}", file=sys.stderr)
        return 2
    checks = {"DRAM bytes (3 % or 1 MB)": [], "tensor active (1 point)": [], "duration > 20 us (5 %)": []}
    worst = []
    for i, (l, r) in enumerate(zip(launches, rows)):
        ours = l["dram_read_bytes"] + l["dram_write_bytes"]
        theirs = r[METRICS[1]] + r[METRICS[2]]
        d = abs(ours - theirs)
        checks["DRAM bytes (3 % or 1 MB)"].append(d <= max(0.03 * theirs, 1e6))
        # ncu prints two decimals; a launch without the field ran no matrix product
        t = abs(l.get("tensor_active_pct", 0.0) - r[METRICS[3]])
        checks["tensor active (1 point)"].append(t <= 1.0)
        if l["time_ns"] > 20000:
            e = l["time_ns"] / r[METRICS[0]] - 1
            checks["duration > 20 us (5 %)"].append(abs(e) <= 0.05)
            worst.append((abs(e), i, l, r, ours, theirs))
        elif d > max(0.03 * theirs, 1e6) or t > 1.0:
            worst.append((1.0, i, l, r, ours, theirs))
    bad = False
    for name, passed in checks.items():
        outside = passed.count(False)
        bad |= outside > o.allow * max(1, len(passed))
        print(f"{name:28} {len(passed) - outside} of {len(passed)} launches within")
    print(f"sum of times: ours {sum(l['time_ns'] for l in launches) / 1e6:.3f} ms, ncu {sum(r[METRICS[0]] for r in rows) / 1e6:.3f} ms; "
          f"sum of DRAM bytes: ours {sum(l['dram_read_bytes'] + l['dram_write_bytes'] for l in launches) / 1e9:.3f} GB, "
          f"ncu {sum(r[METRICS[1]] + r[METRICS[2]] for r in rows) / 1e9:.3f} GB; "
          f"median |duration difference| {100 * statistics.median(abs(l['time_ns'] / r[METRICS[0]] - 1) for l, r in zip(launches, rows)):.1f} %")
    for e, i, l, r, ours, theirs in sorted(worst, key=lambda w: -w[0])[:12]:
        print(f"  {i:4} {l['name'][:46]:46} {l['time_ns'] / 1e3:9.1f} us ncu {r[METRICS[0]] / 1e3:9.1f}  {ours / 1e6:9.1f} MB ncu {theirs / 1e6:9.1f}  "
              f"tensor {l.get('tensor_active_pct', 0.0):5.1f} ncu {r[METRICS[3]]:5.1f}")
    return 1 if bad else 0


sys.exit(main())
