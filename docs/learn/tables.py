#!/usr/bin/env python3
"""Puts the measured tables into the chapters: tables.py [--check]

Between `<!-- table NAME.json -->` and `<!-- end -->` stands what docs/learn/measured/NAME.json holds, which
`stepscope kernels OP … --json` wrote (measure.py has the commands). Without that file the place names the command. `NAME.json#PART` is a part
of a record of several GPUs, which measured/several_gpus.py wrote. --check changes nothing and exits 1 when a page differs.
"""
import argparse
import json
import pathlib
import re
import sys

import measure

HERE = pathlib.Path(__file__).resolve().parent
PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.S)


def microseconds(ns):
    us = ns / 1000
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def error(row):
    return f"{row['error']:.0e} of {row['budget']:.0e}" if row["right"] else ""


def ms(ns):
    return f"{ns / 1e6:.3f}"


def lines(head, rows):
    return [head, "|" + "---|" * (head.count("|") - 1)] + ["| " + " | ".join(r) + " |" for r in rows]


def way_name(way):
    spelled = {"bucket_mib=": "--bucket-mib ", "ctas=": "STEPSCOPE_NCCL_CTAS="}
    for bench, user in spelled.items():
        way = re.sub(r"(^| )" + bench + r"(\d+)", lambda m: m.group(1) + user + m.group(2), way)
    words = way.replace("--bucket-mib ", "--bucket-mib\u00a0").split(" ")
    return "<br>".join(f"`{w}`".replace("\u00a0", " ") for w in words) if way else "alone, first run / last run"


def ways(bench):
    """Mean ms per step by batch; beside it the share of the slower GPU alone, in the two runs without ranks."""
    batches, rows = sorted({r["batch"] for r in bench["rows"]}), {}
    alone = {b: [max(r["ms"]) for r in bench["rows"] if r["batch"] == b and not r["way"]] for b in batches}
    for r in bench["rows"]:
        share = [100 * a / max(r["ms"]) for a in sorted(alone[r["batch"]])]
        cell = f"{max(r['ms']):.2f} ({share[0]:.1f} to {share[-1]:.1f}%)"
        if not r["way"]:
            cell = " / ".join(", ".join(f"{t:.2f}" for t in x["ms"]) for x in bench["rows"] if x["batch"] == r["batch"] and not x["way"])
        rows.setdefault(r["way"], {})[r["batch"]] = cell
    planned = {r["way"]: r["planned_mib"] for r in bench["rows"] if r["batch"] == batches[0]}
    head = "| way | " + " | ".join(f"B={b}, ms" for b in batches) + f" | MiB at B={batches[0]} |"
    cells = [[way_name(w)] + [c.get(b, "") for b in batches] + [str(planned.get(w, ""))] for w, c in rows.items()]
    return [f"Revision {bench['revision']}, mean of a run of 3 to 6 s:\n"] + lines(head, cells)


def links(d):
    rows = [[f["kind"], f["type"], microseconds(f["small_latency_ns"]), microseconds(f["latency_ns"]), f"{f['bus_bytes_per_s'] / 1e9:.0f}"]
            for f in d["links"]]
    return lines("| collective | type | small: µs | large: µs + | bytes over the link at GB/s |", rows)


def collectives(d, way):
    """Collectives of one kind and size together; layers' buckets differ by the final norm, which lies in the first."""
    groups = {}
    for c in d["collectives"][way]:
        size = f"{c['bytes'] / 1e6:.1f}" if "bytes" in c else ""
        groups.setdefault((c["op"], c["kind"], size), []).append(c)
    rows = [[f"{len(cs)} × {kind}, {op}", size] + [ms(sum(c[k] for c in cs)) for k in ("time_ns", "exposed_ns", "hidden_ns")]
            for (op, kind, size), cs in groups.items()]
    return [f"Profile of revision {d['profile_revision']}, B=4:\n"] + lines("| collectives | MB each | ms in all | exposed | hidden |", rows)


def work(d):
    """The parts of the step on one GPU and on two, with the ops whose times differ by more than 0.02 ms."""
    arms = [d["one_gpu"], d["two_ranks"], d["zero1"]]
    rows = [["step without the collector"] + [ms(a["step_ns"]) for a in arms],
            ["traced step on the device"] + [ms(a["device_ns"]) for a in arms],
            ["communication, exposed"] + [ms(a.get("exposed_ns", 0)) for a in arms],
            ["communication, hidden beside other work"] + [ms(a.get("hidden_ns", 0)) for a in arms],
            ["no work at all"] + [ms(a["idle_ns"]) for a in arms]]
    named = [o for o in arms[0]["ops"] if max(abs(a["ops"][o] - arms[0]["ops"][o]) for a in arms) > 2e4]
    rows += [[o] + [ms(a["ops"][o]) for a in arms] for o in named]
    rest = [sum(t for o, t in a["ops"].items() if o not in named) for a in arms]
    rows.append(["all other ops"] + [ms(t) for t in rest])
    head = "| B=4, ms | one GPU | two, `all_reduce_overlapped` | two, `zero1` |"
    return [f"Profiles of revision {d['profile_revision']}:\n"] + lines(head, rows)


def ranks(d):
    times = ("work_ns", "exposed_ns", "hidden_ns", "late_ns")
    rows = [[b, str(r["rank"])] + [ms(r[k]) for k in times] + [f"{r['sm_clock_mhz']:.0f}", f"{r['power_w']:.0f}"]
            for b, rs in d["ranks"].items() for r in rs]
    head = "| B | rank | work, ms | exposed | hidden | late, all collectives | MHz | W |"
    return [f"Profiles of revision {d['profile_revision']}, `all_reduce_overlapped`:\n"] + lines(head, rows)


PARTS = {
    "first": lambda d: ways(d["benches"][0]),
    "ways": lambda d: ways(d["benches"][1]),
    "links": links,
    "all_reduce": lambda d: collectives(d, "all_reduce_overlapped"),
    "zero1": lambda d: collectives(d, "zero1"),
    "work": work,
    "ranks": ranks,
}


def several_gpus(name, part):
    d = json.loads((HERE / "measured" / name).read_text(encoding="utf-8"))
    s = d["setup"]
    who = f"{d['device']}, CUDA {d['driver']}, {d['communicator']}, {d['at'][:10]}"
    if part != "links":
        who += f"; {s['trainer']} trainer, {s['model']}, T={s['seq_len']}"
    return f"Measured: {who}. Single runs, no verdict.\n\n" + "\n".join(PARTS[part](d)) + "\n\n"


# A whole profile of the rung all_tensors at B=16, older than the ladder (684c4cb). The update does not depend on the batch.
OLDER = ("all_tensors", HERE.parent.parent / "python" / "measured" / "profile_ours.json")


def copy_ceiling(profile):
    """The copy bandwidth that stands behind the floors of a profile which no longer holds it: the norm's floor is its bytes over that."""
    norm = next(o for o in profile["ops"] if o["op"] == "grad_norm")
    return norm["min_bytes"] / (norm["floor_ns"] * 1e-9)


def update_ladder():
    """Bytes by hand, the time that they predict, and where a rung was profiled its time and the bytes that the counters saw."""
    older = json.loads(OLDER[1].read_text(encoding="utf-8"))
    ceiling = copy_ceiling(older)
    rows = {OLDER[0]: measure.update_row(OLDER[0], older)}
    file = HERE / "measured" / measure.UPDATE
    if file.exists():
        rows.update((r["rung"], r) for r in json.loads(file.read_text(encoding="utf-8"))["rungs"])
    out, dates = [], {}
    for rung, (trainer, _) in measure.RUNGS.items():
        row, cells = rows.get(rung), [f"`{rung}`", trainer]
        for op, wanted in zip(("adamw", "grad_norm"), measure.bytes_of_rung(rung)):
            hand = wanted * measure.PARAMETERS
            cells += [f"{wanted:.4g}", microseconds(1e9 * hand / (row and row["copy_bytes_per_s"] or ceiling))]
            counted = row and (row[op]["dram_read_bytes"] + row[op]["dram_write_bytes"]) / measure.PARAMETERS
            cells += [microseconds(row[op]["time_ns"]), f"{counted:.2f}"] if row else ["not run", ""]
        out.append(cells)
        if row:
            dates.setdefault(f"{row['device']}, CUDA {row['driver']}, {row['at'][:10]}, {row['git_revision'][:7]}, B={row['batch_size']}", []).append(rung)
    head = "| rung | trainer | AdamW: bytes a parameter | predicted µs | µs | bytes counted | norm: bytes | predicted µs | µs | bytes counted |"
    who = "; ".join(f"{', '.join(f'`{r}`' for r in rungs)}: {date}" for date, rungs in dates.items())
    return (f"Measured: {who}. Predicted with a rung's own copy bandwidth, else with {ceiling / 1e12:.2f} TB/s of profile_ours.json (684c4cb).\n\n"
            + "\n".join(lines(head, out)) + "\n\n")


def table(name):
    if "#" in name:
        return several_gpus(*name.split("#"))
    if name == measure.UPDATE:
        return update_ladder()
    file = HERE / "measured" / name
    if not file.exists():
        return "*Not run yet: `./stepscope " + measure.commands_of(name)[0] + "`*\n\n"
    d = json.loads(file.read_text(encoding="utf-8"))
    ladder = any("idea" in r for r in d["rows"])
    out, shape = [], None
    for r in d["rows"]:
        if r["shape"] != shape:
            shape = r["shape"]
            out.append(f"\n{r['op']}, {shape}:\n")
            out.append("| rung or variant | " + ("predicted µs | " if ladder else "") + "µs | GB/s | TFLOP/s | error of budget |")
            out.append("|---|" + ("---|" if ladder else "") + "---|---|---|---|")
        name = r["variant"] or "(one way)"
        predicted = f" {microseconds(r['predicted_ns'])} |" if r.get("predicted_ns") else " |" if ladder else ""
        if r["right"]:
            flops = f"{r['flops_per_s'] / 1e12:.1f}" if r["flops_per_s"] else ""
            out.append(f"| `{name}` |{predicted} {microseconds(r['time_ns'])} | {r['bytes_per_s'] / 1e9:.0f} | {flops} | {error(r)} |")
        else:
            out.append(f"| `{name}` |{predicted} {'refused' if r['refused'] else '**wrong**, not timed'} | | | {r['wrong']} |")
    who = f"{d['device']}, CUDA {d['driver']}, {d['at'][:10]}; {d['trainer']} trainer, {d['model']}, B={d['batch_size']}, T={d['seq_len']}, seed {d['seed']}"
    return f"Measured: {who}.\n" + "\n".join(out) + "\n\n"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page differs")
    check, wrong = parser.parse_args(arguments).check, []
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = PLACE.sub(lambda m: m.group(1) + table(m.group(2)) + m.group(3), text)
        if new != text:
            wrong.append(page.name)
            if not check:
                page.write_text(new, encoding="utf-8")
    if check and wrong:
        print("docs/learn/tables.py would change " + ", ".join(wrong) + ": run it and commit the pages")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
