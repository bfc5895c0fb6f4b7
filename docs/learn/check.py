#!/usr/bin/env python3
"""Checks the answer of a paper exercise: check.py EXERCISE NUMBER

Exit 0: within the tolerance. 1: not. The answers are computed from the formulas and the committed profiles.
"""
import json
import math
import pathlib
import sys

import measure
import tables

PYTHON = pathlib.Path(__file__).resolve().parent.parent.parent / "python" / "measured"
LOGITS = 4096 * 50304  # rows and padded columns of chapter 5


def profile():
    return json.loads((PYTHON / "profile_ours.json").read_text(encoding="utf-8"))


def op(name):
    step_pass, op_name = name.split()
    return next(o for o in profile()["ops"] if (o["pass"], o["op"]) == (step_pass, op_name))


def matmul_ceiling():
    timing = profile()["timing"]
    return timing["model_flops_per_s"] / (timing["of_matmul_ceiling_pct"] / 100)


def time_of_other_bytes(o):
    """Of an op's headroom the part that would remain if each kernel ran at the ceiling: bytes that the floor does not count."""
    return o["kernel_floor_ns"] - o["floor_ns"]


def bf16_gradients_ns():
    saved = sum(measure.bytes_of_rung("split_masters")) - sum(measure.bytes_of_rung("bf16_gradients"))
    return (saved * measure.PARAMETERS + 2 * measure.BLOCKS) / 4.3e12 * 1e9


EXERCISES = {  # name: question, unit, answer, tolerance in percent
    "1a": ("the floor of forward qkv", "ms", lambda: 12 * 2 * 16384 * 768 * 2304 / matmul_ceiling() * 1e3, 2),
    "1b": ("bytes that AdamW moves for a parameter", "bytes",
           lambda: (op("optimizer adamw")["dram_read_bytes"] + op("optimizer adamw")["dram_write_bytes"]) / measure.PARAMETERS, 2),
    "1c": ("time of forward ln1 that goes into bytes which its floor does not count", "ms", lambda: time_of_other_bytes(op("forward ln1")) / 1e6, 10),
    "3a": ("reads from shared memory for 32 multiply-adds, when a thread makes four results of a column", "", lambda: (4 + 1) / 4, 1),
    "5a": ("written_out of bf16 logits at 4.2 TB/s", "us", lambda: 6 * LOGITS * 2 / 4.2e12 * 1e6, 3),
    "5b": ("a row's loss when all logits are equal", "", lambda: math.log(50257), 1),
    "6a": ("bytes a parameter with the mixed trainer's defaults, AdamW and norm together", "bytes",
           lambda: sum(measure.bytes_of_rung("split_moments")), 1),
    "6b": ("what weight_gradients=bf16 saves at 4.3 TB/s", "us", lambda: bf16_gradients_ns() / 1e3, 3),
    "7a": ("how much longer a step takes alone, when in turns it takes 1.3% less and 3.0% more joules, with k = 0.5", "%",
           lambda: 100 * (math.exp(0.5 * math.log(0.987) + 0.5 * math.log(1.03)) - 1), 8),
}


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in EXERCISES:
        print(__doc__, file=sys.stderr)
        for name, (question, unit, _, _) in EXERCISES.items():
            print(f"  {name}  {question}{f', in {unit}' if unit else ''}", file=sys.stderr)
        return 2
    question, unit, answer, tolerance = EXERCISES[arguments[0]]
    try:
        given = float(arguments[1])
    except ValueError:
        print(f"{arguments[1]}: expected a number{f' of {unit}' if unit else ''}", file=sys.stderr)
        return 2
    wanted = answer()
    right = abs(given - wanted) <= abs(wanted) * tolerance / 100
    far = "" if right or not given * wanted > 0 else f"; it is {'too large' if abs(given) > abs(wanted) else 'too small'}"
    print(f"{arguments[0]}, {question}: {'right' if right else f'{arguments[1]} {unit} is not within {tolerance}%'}{far}")
    return not right


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
