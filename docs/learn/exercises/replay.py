#!/usr/bin/env python3
"""Plays a recorded H200 (chapter 7): prints the step times of one process that ran there, drawn from a record of identical code.

An arm of `stepscope experiment run --a … --b …` needs no GPU then, and the runner decides about real noise. What it cannot show: processes
that follow each other share heat, and these are drawn independently.
"""
import argparse
import json
import random
import sys

RECORD = "tests/data/aa/h200-mixed-d12-b4-alone.json"
HIDDEN = (-1.0, -0.5, 0.0, 0.0, 0.5, 1.0)  # percent


def percent(text):
    value = float(text)
    if not -50 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text}: expected -50 to 1000 percent")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="?", type=int, default=600, help="print so many step times")
    parser.add_argument("--plus", type=percent, metavar="PCT", help="every step takes this many percent longer")
    parser.add_argument("--hidden", type=int, metavar="N", help="puzzle N: every step takes longer or shorter by a percent that you shall find")
    parser.add_argument("--guess", choices=("faster", "slower", "same"), help="with --hidden: check the answer; exit 1 when it is another one")
    parser.add_argument("--record", default=RECORD, help="draw from this record of `experiment aa --alone N --record` (default: %(default)s)")
    flags = parser.parse_args()
    if flags.hidden is not None and flags.plus is not None:
        parser.error("--plus: --hidden N chooses the percent; leave one of the two out")
    plus = flags.plus or 0 if flags.hidden is None else random.Random(flags.hidden).choice(HIDDEN)
    if flags.guess:
        if flags.hidden is None:
            parser.error("--guess: expected --hidden N beside it")
        right = "same" if plus == 0 else "slower" if plus > 0 else "faster"
        print(f"puzzle {flags.hidden}: {'right' if flags.guess == right else 'no'}, {plus:+.1f}% was planted")
        return flags.guess != right
    try:
        with open(flags.record, encoding="utf-8") as file:
            tenths = random.choice(json.load(file)["runs"])["tenths_ns"]
        if len(tenths) < 10:
            raise ValueError("a process of less than a second")
    except (OSError, ValueError, LookupError, TypeError) as e:
        parser.error(f"--record {flags.record}: expected a record of `experiment aa --alone N --record`: {e!r}")
    now, lines = 0.0, []
    for step in range(flags.steps):
        # A run that is longer than the record goes on with its last second, one period of the clock's cycle.
        tenth = int(now / 1e8)
        ns = tenths[tenth if tenth < len(tenths) else len(tenths) - 10 + (tenth - len(tenths)) % 10] * (1 + plus / 100)
        now += ns
        lines.append(f"step {step + 1} {ns / 1e6:.4f} ms")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
