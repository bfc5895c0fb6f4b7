#!/usr/bin/env python3
"""Puts the measured tables into the chapters: tables.py [--check]

Between `<!-- table NAME.json -->` and `<!-- end -->` stands what docs/learn/measured/NAME.json holds, which
`stepscope kernels OP … --json` wrote. Without that file the place says so. --check changes nothing and exits 1 when a page differs.
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.S)


def microseconds(ns):
    us = ns / 1000
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def error(row):
    return f"{row['error']:.0e} of {row['budget']:.0e}" if row["right"] else ""


def table(name):
    file = HERE / "measured" / name
    if not file.exists():
        return f"*Not measured yet: `docs/learn/measured/{name}` is made by `stepscope kernels … --json`.*\n"
    d = json.loads(file.read_text())
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


def main():
    check, wrong = "--check" in sys.argv[1:], []
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text()
        new = PLACE.sub(lambda m: m.group(1) + table(m.group(2)) + m.group(3), text)
        if new != text:
            wrong.append(page.name)
            if not check:
                page.write_text(new)
    if check and wrong:
        print("docs/learn/tables.py would change " + ", ".join(wrong) + ": run it and commit the pages")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
