"""Puts the measurements of python/measured/ into the pages that show them.

    python3 python/tools/page.py                  writes the tables between the marks of the pages below
    python3 python/tools/page.py --check          exit 1 where a page and its records differ
    python3 python/tools/page.py --take FILE...   keeps files that measure.py or `stepscope profile` wrote as records, cut to what the pages show

Exit 2: wrong arguments or files; nothing was written then.
A mark is `<!-- measured KIND FILE... -->`; the table after it ends at `<!-- end -->`.
"""
import argparse
import json
import math
import pathlib
import re
import statistics
import sys

import curves as training_curves
import profiles
from wrong import Wrong

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "python" / "measured"
PAGES = [ROOT / "docs" / "python.md", ROOT / "docs" / "study" / "pytorch-and-ours.md", ROOT / "docs" / "evaluation.md"]
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


ARMS = {"pytorch": "PyTorch", "again": "PyTorch again", "replaced": "replaced"}


def losses(record):
    curves, rows = record["curves"], []
    arms = [a for a in ARMS if a in curves]
    for seed in range(len(curves["pytorch"])):
        rows.append((seed, *(f"{curves[a][seed][0]:.4f}" for a in arms), *(f"{training_curves.mean_of_the_last(curves[a][seed]):.4f}" for a in arms)))
    steps = len(curves["pytorch"][0])
    times = record.get("ms_by_arm", {})
    told = "; ".join(f"{ARMS[a]} {statistics.median(times[a]):.1f}" for a in arms if all(times.get(a) or [None]))
    return (made_on(record) + f" {steps} steps" + (f" of {record['data']}" if "data" in record else "") + ":\n\n" + table(
        ("seed", *(f"first loss, {ARMS[a]}" for a in arms), *(f"mean of the last {training_curves.WINDOW}, {ARMS[a]}" for a in arms)), rows) +
        f"\n\n{training_curves.sentence(curves)}" + (f" Median ms a step: {told}." if told else ""))


def evaluation(record):
    rows = []
    for r in record["rows"]:
        others = [o["margin"] for o in r["other_answers"]]
        rows.append((r["arm"], r["correct"], f"{r['mean_error']:.1e}", f"{r['error']:.1e}", f"{r['budget']:.1e}" if r["budget"] else "",
                     f"{len(others)}, nearest by {max(others):.1e}" if others else "none", {None: "", True: "inside", False: "**outside**"}[r["ok"]]))
    return (f"{record['device']}, PyTorch {record['torch']}, {record['date']}, {record['examples']} questions.\n\n" + table(
        ("by", "right", "mean error", "largest error", "budget", "other answers than fp64's", ""), rows))


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


def without_folders(command):
    """A command as somebody can type it at the root of the tree: where the measuring machine kept programs and files means nothing elsewhere."""
    return re.sub(r"(?<!\S)/\S*?/((?:python/tools/)?[^/\s]+)(?!\S)", r"\1", command)


def reduced(record):
    """The record without what no page shows; of its kernels those that a page may name. A profile stays one that `stepscope report` reads."""
    if record.get("schema"):
        typed = {part: {**record[part], field: without_folders(record[part][field])}
                 for part, field in (("run", "command"), ("collection", "program")) if field in record.get(part, {})}
        return {**{k: v for k, v in record.items() if k != "sources"}, **typed, "layers": [], "launches": [],
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


def take(paths):
    taken = {}
    for path in paths:
        record = profiles.read(path)
        try:
            taken[path.name.removesuffix(".gz")] = json.dumps(reduced(record), indent=None if "schema" in record else 1) + "\n"
        except (KeyError, TypeError, AttributeError, ZeroDivisionError) as e:
            raise Wrong(f"{path}: no record ({type(e).__name__}: {e}), expected what measure.py or `stepscope profile` writes") from None
    RECORDS.mkdir(exist_ok=True)
    for name, text in taken.items():
        (RECORDS / name).write_text(text)


def section(kind, names):
    paths = [RECORDS / n for n in names.split()]
    if missing := [p.name for p in paths if not p.exists()]:
        return f"Not measured yet: {', '.join(missing)}, which `tests/device/pytorch.sh` makes."
    if kind in ("profiles", "sums"):
        return {"profiles": profiles.markdown, "sums": profiles.sums}[kind](paths)
    return {"check": check, "bench": bench, "compiled": bench, "thunder": thunder, "losses": losses, "own": own,
            "evaluation": evaluation}[kind](profiles.read(paths[0]))


def filled(text):
    return MARK.sub(lambda m: m[1] + "\n" + section(m[2], m[3]) + "\n\n" + m[5], text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--check", action="store_true", help="exit 1 where a page and its records differ")
    does.add_argument("--take", nargs="+", metavar="FILE", type=pathlib.Path, help="keeps these as records, cut to what the pages show")
    flags = parser.parse_args(arguments)
    try:
        if flags.take:
            take(flags.take)
            return 0
        texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
        made = {page: filled(text) for page, text in texts.items()}
    except Wrong as e:
        print(f"page.py: {e}", file=sys.stderr)
        return 2
    bad = [page for page in PAGES if made[page] != texts[page]]
    for page in bad:
        print(f"{page.relative_to(ROOT)}: {'differs from its records' if flags.check else 'written'}")
        if not flags.check:
            page.write_text(made[page], encoding="utf-8")
    return 1 if bad and flags.check else 0


if __name__ == "__main__":
    sys.exit(main())
