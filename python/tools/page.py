"""Puts the measurements of python/measured/ into the pages that show them.

    python3 python/tools/page.py                  writes the tables between the marks of docs/python.md and docs/study/pytorch-and-ours.md
    python3 python/tools/page.py --check          exit 1 where a page and its records differ
    python3 python/tools/page.py --take FILE...   keeps files that measure.py or `stepscope profile` wrote as records, cut to what the pages show

A mark is `<!-- measured KIND FILE... -->`; the table after it ends at `<!-- end -->`.
"""
import gzip
import json
import math
import pathlib
import re
import sys

import profiles

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "python" / "measured"
PAGES = [ROOT / "docs" / "python.md", ROOT / "docs" / "study" / "pytorch-and-ours.md"]
MARK = re.compile(r"(<!-- measured (\w+) ([^>]*?) -->\n)(.*?)(<!-- end -->)", re.S)


def table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join(lines + ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def made_on(record):
    return f"{record['device']}, PyTorch {record['torch']}, {record['date']}, B={record['batch']} T={record['tokens']}."


def check(record):
    rows = [(r["op"], r["tensor"], r["site"], f"{r['error']:.3g}", f"{r['torch_error']:.3g}", f"{r['budget']:.3g}", "ok" if r["ok"] else "worse")
            for r in record["rows"]]
    return made_on(record) + f" {record['compared']} tensors compared; the one nearest to its budget for each op and tensor:\n\n" + table(
        ("op", "tensor", "where", "error", "PyTorch's own", "budget", ""), rows)


def bench(record):
    rows = [(r["what"], r["shape"], r["how"], f"{r['torch_ms']:.3f}", f"{r['ours_ms']:.3f}", f"{r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}]",
             r["verdict"]) for r in record["rows"]]
    return made_on(record) + "\n\n" + table(("what", "shape", "how", "PyTorch, ms", "ours, ms", "ratio, 95%", "ours is"), rows)


def thunder(record):
    return bench(record).replace("\n", f" {record['layers']} layers.\n", 1).replace("PyTorch, ms", f"Thunder {record['thunder']} alone, ms").replace("ours, ms", "with ours before it, ms")


def losses(record):
    rows = []
    for seed in range(len(record["curves"]["pytorch"])):
        arms = [record["curves"][a][seed] for a in ("pytorch", "replaced")]
        rows.append((seed, *(f"{a[0]:.4f}" for a in arms), *(f"{sum(a[-20:]) / 20:.4f}" for a in arms)))
    return made_on(record) + f" {len(arms[0])} steps:\n\n" + table(
        ("seed", "first loss, PyTorch", "replaced", "mean of the last 20, PyTorch", "replaced"), rows)


def own(record):
    row, wrong = record["right"]["bench"], record["wrong"]
    lines = [made_on(record) + "\n", table(("kernel", "answer"), [
        ("right", f"taken; {row['torch_ms']:.4f} ms of PyTorch's layernorm, {row['ours_ms']:.4f} ms with this forward: "
                  f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"),
        *[(f"eps left out: {r['site']}, {r['tensor']}", f"refused: {r['worst']}") for r in wrong[:3]]])]
    return "\n".join(lines)


LEFT_OUT = {"name": "record_reduced", "severity": "info", "stage": "document", "count": 1,
            "detail": "layers, launches, timeline and kernels below 0.2 ms were left out of this record",
            "advice": "Take the profile again to see them."}


def reduced(record):
    """The record without what no page shows; of its kernels those that a page may name. A profile stays one that `stepscope report` reads."""
    if record.get("schema"):
        return {**{k: v for k, v in record.items() if k != "sources"}, "layers": [], "launches": [],
                "timeline": {"gaps": [], "copies": [], "environment": []},
                "kernels": [k for k in record["kernels"] if k["time_ns"] > 2e5], "missing": [*record["missing"], LEFT_OUT]}
    if record.get("part") == "check":
        best = {}
        for r in record["rows"]:
            strain = r["error"] / r["budget"]
            key = r["op"], r["tensor"]
            if key not in best or not strain <= best[key][0] or not math.isfinite(strain):
                best[key] = strain, r
        return {**record, "compared": len(record["rows"]), "rows": [r for _, r in best.values()]}
    return record


def read(path):
    return json.loads((gzip.open(path) if path.suffix == ".gz" else path.open("rb")).read())


def take(paths):
    RECORDS.mkdir(exist_ok=True)
    for path in map(pathlib.Path, paths):
        name = path.name.removesuffix(".gz")
        record = reduced(read(path))
        (RECORDS / name).write_text(json.dumps(record, indent=None if "schema" in record else 1) + "\n")


def section(kind, names):
    paths = [RECORDS / n for n in names.split()]
    if kind in ("profiles", "sums"):
        return {"profiles": profiles.markdown, "sums": profiles.sums}[kind](paths)
    return {"check": check, "bench": bench, "compiled": bench, "thunder": thunder, "losses": losses, "own": own}[kind](read(paths[0]))


def filled(text):
    return MARK.sub(lambda m: m[1] + "\n" + section(m[2], m[3]) + "\n\n" + m[5], text)


def main(arguments):
    if arguments[:1] == ["--take"]:
        return take(arguments[1:])
    bad = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if filled(text) != text:
            bad += 1
            print(f"{page.relative_to(ROOT)}: {'differs from its records' if '--check' in arguments else 'written'}")
            if "--check" not in arguments:
                page.write_text(filled(text), encoding="utf-8")
    return 1 if bad and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
