#!/usr/bin/env python3
"""Shows three ways of being wrong about recorded processes of identical code (chapter 7): noise.py cool|steps|looks RECORD

`cool` and `looks` take a record of `experiment aa --alone N --record`, such as tests/data/aa/h200-mixed-d12-b4-alone.json: fresh processes,
each alone on the device, with the mean step time of every tenth of a second. `steps` takes one of pairs in turns, such as
tests/data/aa/h200-mixed-d12.json. Nothing here needs a GPU.
"""
import json
import math
import random
import statistics
import sys

LOOKS, LEVEL = (8, 16, 24), 0.008  # docs/experiment-procedure.md#the-levels


def t_tail(t, degrees):
    """Probability that Student's t is further from 0 than t: Simpson's rule over the density, of which t = tan(x) makes a finite stretch."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    x, n = math.atan(abs(t) / math.sqrt(degrees)), 60
    total = sum((1 if i in (0, n) else 4 if i % 2 else 2) * math.cos(x * i / n) ** (degrees - 1) for i in range(n + 1))
    return max(0.0, 1 - 2 * scale * total * x / n / 3)


def p_of(values):
    """That a mean so far from 0 comes from noise alone."""
    spread = statistics.stdev(values)
    return t_tail(statistics.mean(values) / spread * math.sqrt(len(values)), len(values) - 1) if spread > 0 else 1.0


def ms(ns):
    return f"{ns / 1e6:.3f} ms"


def cool(record):
    """How the step time of a process goes on, as a mean over all processes: tenths of a second, then seconds. The first tenth holds the start."""
    runs = record["runs"]
    if statistics.median(r["step_ns"] for r in runs) > 3e7:
        raise ValueError("a tenth of a second holds too few of its steps; expected steps below 30 ms")
    means = [statistics.mean(of_runs) for of_runs in zip(*(r["tenths_ns"] for r in runs))]
    first = min(means[1:])
    rows = [(f"{i / 10:.1f} s", means[i]) for i in range(1, 20)]
    rows += [(f"{i / 10:.0f} to {i / 10 + 1:.0f} s", statistics.mean(means[i:i + 10])) for i in range(20, len(means) - 9, 10)]
    for label, mean in rows:
        print(f"{label:>8}  {ms(mean)}  {'#' * round((mean / first - 1) * 500)}")
    early, warm = statistics.mean(means[1:8]), statistics.mean(r["step_ns"] for r in runs)
    print(f"0.1 to 0.8 s {ms(early)}, the 3 s that count {ms(warm)}: who measures A first and the same A later finds {100 * (warm / early - 1):+.2f}%")
    if all("full_clock_ns" in r for r in runs):
        full = statistics.mean(r["full_clock_ns"] for r in runs)
        print(f"steps 2 to 5 {ms(full)}, at the full clock; then {statistics.mean(r['sm_clock_mhz'] for r in runs):.0f} MHz, "
              f"{statistics.mean(r['power_w'] for r in runs):.0f} W and {100 * (warm / full - 1):+.2f}%")


def steps(record):
    """Arms in turns: a t-test over the quads (ABBA) of one pair of processes, as if each were an independent trial."""
    called, values, claimed = 0, [], []
    for pair in record["pairs"]:
        quads = {}
        for block in pair["blocks"]:
            quads.setdefault(block["quad"], {"A": [], "B": []})[block["arm"]].append(math.log(block["step_ns"]))
        ratios = [statistics.mean(q["B"]) - statistics.mean(q["A"]) for q in quads.values()]
        called += p_of(ratios) < 0.05
        values.append(statistics.mean(ratios))
        claimed.append(statistics.stdev(ratios) / math.sqrt(len(ratios)))
    print(f"a t-test over the {len(quads)} quads of a pair calls {called} of {len(values)} pairs of identical code different: "
          f"{100 * called / len(values):.0f}%, where it promises 5%")
    print(f"it takes a pair's value to be known to {100 * statistics.median(claimed):.2f}% (median); in truth pairs spread by "
          f"{100 * statistics.stdev(values):.2f}%")


def looks(record, trials=2000, most=24, seed=1):
    """Pairs of identical code with signs drawn anew: who stops at the first p < 0.05, and who looks as planned?"""
    runs = record["runs"]
    pairs = [math.log(b["step_ns"] / a["step_ns"]) for a, b in zip(runs[0::2], runs[1::2])]
    random.seed(seed)
    eager = planned = once = 0
    for _ in range(trials):
        seen = [random.choice((-1, 1)) * random.choice(pairs) for _ in range(most)]
        eager += any(p_of(seen[:n]) < 0.05 for n in range(3, most + 1))
        once += p_of(seen) < 0.05
        planned += any(p_of(seen[:n]) < LEVEL for n in LOOKS)
    for name, count in ((f"a look after every pair from 3 to {most}, stop at p < 0.05", eager), (f"one look after {most} pairs, p < 0.05", once),
                        (f"looks after {', '.join(map(str, LOOKS))} pairs, p < {LEVEL}", planned)):
        print(f"{100 * count / trials:5.1f}%  {name}")


def main(arguments):
    what = {"cool": (cool, "runs", "--alone N --record"), "steps": (steps, "pairs", "--quick --record"), "looks": (looks, "runs", "--alone N --record")}
    if len(arguments) != 2 or arguments[0] not in what:
        print(f"expected {'|'.join(what)} and a record, found '{' '.join(arguments)}'\n\n{__doc__}", file=sys.stderr)
        return 2
    show, part, flags = what[arguments[0]]
    try:
        with open(arguments[1], encoding="utf-8") as file:
            record = json.load(file)
        print(f"{record['what']}, {record['device']}, {record['at'][:10]}: {len(record[part])} {'processes' if part == 'runs' else 'pairs of processes'} of identical code")
        show(record)
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError) as e:
        print(f"{arguments[1]}: expected a record of `experiment aa {flags}`: {e!r}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
