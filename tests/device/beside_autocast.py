"""Each gradient tensor of a trainer beside PyTorch's bf16 autocast, both against fp64, as a markdown table.

    autocast_error.py PREFIX --seq-len 1024 > autocast.json
    stepscope gate --trainer mixed --checkpoint PREFIX.bin --state PREFIX_state.bin --json > gate.json
    beside_autocast.py autocast.json gate.json [--limit 1.5]

The first column of numbers is the relative L2 error of a tensor (|got - fp64| / |fp64|) divided by autocast's; behind it stand both errors and
both cosines, as 1 - cosine. Exit 0: every tensor within the limit. 1: one is above it, or is no number. 2: a file is missing, is no such
document, or lacks a tensor of the other.
"""
import argparse
import json
import sys


class InputError(Exception):
    pass


def read(path):
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        raise InputError(f"{path}: {e}") from None


def of_trainer(path):
    """What one `gate --checkpoint … --state … --json` says: {tensor: (rel-L2, cosine)}, and its first lines."""
    document = read(path)
    reports = document.get("reports", []) if isinstance(document, dict) else []
    checks = [c for r in reports for c in r["checks"] if c["name"] == "state" and "cosine" in c]
    if not checks:
        raise InputError(f"{path}: no checks of a state with cosines; it takes what `stepscope gate --checkpoint … --state … --json` prints")
    if len(checks) != len({c["tensor"] for c in checks}):
        raise InputError(f"{path}: a tensor stands there twice; it takes the gate of one trainer")
    norm = {c["tensor"]: next((m["error"] for m in c.get("measures", []) if m["unit"] == "norm"), c["error"]) for c in checks}
    return {c["tensor"]: (float(norm[c["tensor"]]), float(c["cosine"])) for c in checks}, reports[0]


def of_autocast(path):
    document = read(path)
    try:
        return {name: (e["rel_l2"], e["cosine"]) for name, e in document["gradients"].items()}, document
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: no gradients; it takes what autocast_error.py prints") from None


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("autocast")
    a.add_argument("gate")
    a.add_argument("--limit", type=float, default=1.5, help="largest ratio that exits 0")
    o = a.parse_args()
    try:
        theirs, autocast = of_autocast(o.autocast)
        ours, report = of_trainer(o.gate)
        ours.pop("logits", None)
        if set(theirs) != set(ours):
            raise InputError(f"{o.autocast} and {o.gate} have different tensors: {' '.join(sorted(set(theirs) ^ set(ours)))}")
    except InputError as e:
        print(f"beside_autocast.py: {e}", file=sys.stderr)
        return 2
    print(f"{report['trainer']}, {report['workload']}, {report['device']}; PyTorch {autocast['torch']} under bf16 autocast on {autocast['device']}\n")
    print("| tensor | ÷ autocast's | error | autocast's | 1 - cosine | autocast's |\n|---|--:|--:|--:|--:|--:|")
    above = []
    for name, (error, cosine) in theirs.items():
        got, got_cosine = ours[name]
        ratio = got / error if error > 0 else float("inf")
        if not ratio <= o.limit:  # a NaN is above every limit
            above.append(name)
        print(f"| {name} | {ratio:.2f} | {got:.2e} | {error:.2e} | {1 - got_cosine:.1e} | {1 - cosine:.1e} |")
    print(f"\n{len(theirs)} tensors, " + (f"above {o.limit:g}: {' '.join(above)}" if above else f"none above {o.limit:g}"))
    return 1 if above else 0


sys.exit(main())
