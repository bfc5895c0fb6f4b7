"""Several profile documents side by side: time of the step, share of kernel time without a place, and ms by pass and op.

    python3 python/tools/profiles.py profile_eager.json profile_ours.json ...
"""
import argparse
import gzip
import json
import pathlib
import sys
import zlib

from wrong import Wrong

FIRST = ["encoder", "forward", "classifier", "backward", "optimizer", "communication", "other"]


def read(path):
    path = pathlib.Path(path)
    try:
        document = json.loads((gzip.open(path) if path.suffix == ".gz" else path.open("rb")).read())
    except (OSError, EOFError, ValueError, zlib.error) as e:
        raise Wrong(f"{path}: {getattr(e, 'strerror', None) or e}") from None
    if not isinstance(document, dict):
        raise Wrong(f"{path}: no JSON object, expected what measure.py or `stepscope profile` writes")
    return document


def name_of(path):
    return pathlib.Path(path).name.split(".")[0].removeprefix("profile_")


def ms(ns):
    return "-" if ns is None else f"{ns / 1e6:.3f}"


def by_op(document):
    return {(o["pass"], o["op"]): o["time_ns"] for o in document.get("ops", [])}


def rows_of(documents):
    """(label, text of each document) for the totals, then passes and ops in the order of a step."""
    totals = [d.get("totals", {}) for d in documents]
    yield "step, timed without collector", [ms(d.get("timing", {}).get("step_time_ns", {}).get("median")) for d in documents]
    yield "traced step", [ms(t.get("time_ns")) for t in totals]
    yield "idle", [ms(t.get("idle_ns")) for t in totals]
    yield "unattributed", [ms(t.get("unattributed_ns")) for t in totals]
    yield "unattributed, % of kernel time", [share(t) for t in totals]
    passes = [{p["name"]: p["time_ns"] for p in d.get("passes", [])} for d in documents]
    ops = [by_op(d) for d in documents]
    order = []
    for table in ops:
        order += [key for key in table if key not in order]
    for step_pass in FIRST:
        if any(step_pass in p for p in passes):
            yield f"**{step_pass}**", [ms(p.get(step_pass)) for p in passes]
            for key in (k for k in order if k[0] == step_pass):
                yield f"{key[0]} {key[1]}", [ms(t.get(key)) for t in ops]


# Rows whose kernels meet in one fused kernel somewhere, so that only their sum is the same work in every column.
SUMS = {
    "lm_head": ("lm_head",),
    "loss": ("loss",),
    "lm_head and loss": ("lm_head", "loss"),
    "layernorms and residual sums": ("ln1", "ln2", "lnf", "residual1", "residual2"),
    "GELU and the MLP's products": ("gelu", "mlp_up", "mlp_down"),
    "attention and its products": ("attention", "qkv", "attproj"),
}


def sums(paths):
    """Table of neighbouring ops, forward and backward together."""
    documents = [read(p) for p in paths]
    lines = ["| ms per step, both passes | " + " | ".join(name_of(p) for p in paths) + " |", "|---|" + "---:|" * len(paths)]
    for label, ops in SUMS.items():
        cells = (f"{sum(t for (_, op), t in by_op(d).items() if op in ops) / 1e6:.2f}" for d in documents)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def share(totals):
    kernels = totals.get("passes_ns", 0) + totals.get("unattributed_ns", 0)
    return f"{100 * totals.get('unattributed_ns', 0) / kernels:.2f}" if kernels else "-"


def markdown(paths):
    lines = ["| ms per step | " + " | ".join(name_of(p) for p in paths) + " |", "|---|" + "---:|" * len(paths)]
    lines += [f"| {label} | " + " | ".join(cells) + " |" for label, cells in rows_of([read(p) for p in paths])]
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", nargs="+", metavar="FILE", type=pathlib.Path, help="a profile document, or one in .gz")
    try:
        print(markdown(parser.parse_args(arguments).profiles))
    except Wrong as e:
        print(f"profiles.py: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
