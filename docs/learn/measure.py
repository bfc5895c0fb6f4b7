#!/usr/bin/env python3
"""Makes the records behind the chapters' tables, on a machine with a GPU: measure.py [--list] [--again] [--program ./stepscope] [--out FOLDER] [NAME.json …]

Without names it makes what docs/learn/measured/ lacks (--again: makes what is there anew); docs/learn/tables.py then puts the tables into the
pages. --list prints the commands and runs none. --out writes the records elsewhere, for another machine to put them into measured/. A record
whose command fails is left out, and the others are made all the same. several-gpus.json is made by measured/several_gpus.py.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MEASURED = HERE / "measured"

KERNELS = {  # record: arguments of `stepscope kernels`, to which --seed 7 --json comes
    "layernorm_forward.json": "layernorm_forward --trainer fp32 --ladder",
    "layernorm_forward-b64.json": "layernorm_forward --trainer fp32 -b 64 --ladder",
    "layernorm_backward.json": "layernorm_backward --trainer fp32 --ladder",
    "linear_forward.json": "linear_forward --trainer fp32 -b 1 --rounds 10 --ladder",
    "mixed-linear_forward.json": "linear_forward --trainer mixed",
    "attention_forward.json": "attention_forward --trainer fp32 --ladder",
    "mixed-attention_forward.json": "attention_forward --trainer mixed",
    "classifier.json": "classifier --trainer fp32 --ladder",
    "mixed-classifier.json": "classifier --trainer mixed",
    "adamw.json": "adamw --trainer fp32",
    "mixed-adamw.json": "adamw --trainer mixed",
    "grad_norm.json": "grad_norm --trainer fp32",
    "mixed-grad_norm.json": "grad_norm --trainer mixed",
}

# Chapter 6: the ladder of the update, taken from profiles, because `kernels` would time what its case needs to bring split masters and
# bf16 gradients into the form that a trainer keeps them in.
UPDATE = "update.json"
RUNGS = {  # rung: trainer and variants; what is not named is the default
    "fp32_per_tensor": ("fp32", "adamw=per_tensor"),
    "fp32_all_tensors": ("fp32", ""),
    "per_tensor": ("mixed", "adamw=per_tensor masters=fp32 moments=fp32 weight_gradients=fp32"),
    "all_tensors": ("mixed", "masters=fp32 moments=fp32 weight_gradients=fp32"),
    "split_masters": ("mixed", "moments=fp32 weight_gradients=fp32"),
    "bf16_gradients": ("mixed", "moments=fp32 wte_gradient=fp32"),
    "bf16_wte": ("mixed", "moments=fp32"),
    "split_moments": ("mixed", ""),
    "norm_beside_backward": ("mixed", "grad_norm=beside_backward"),
}
PARAMETERS = 124_475_904      # of d12, with the padded vocabulary
BLOCKS = 12 * 12 * 768 * 768  # of these in the blocks' matrices, whose gradients weight_gradients=bf16 stores in 2 bytes
WTE = 50_304 * 768            # of these in wte, whose gradient wte_gradient=bf16 stores so


def bytes_of_rung(name):
    """Bytes a parameter that AdamW and the gradient norm must move, by hand."""
    trainer, variants = RUNGS[name]
    if trainer == "fp32" or "weight_gradients=fp32" in variants:
        narrow = 0
    else:
        narrow = BLOCKS if "wte_gradient=fp32" in variants else BLOCKS + WTE
    gradient = (2 * narrow + 4 * (PARAMETERS - narrow)) / PARAMETERS
    of_each = 4 if trainer == "fp32" or "moments=fp32" in variants else 3
    moments = 4 * of_each                                                       # m and v, read and written
    if trainer == "fp32":
        return gradient + moments + 2 * 4, gradient
    masters = 2 * 4 + 2 if "masters=fp32" in variants else 2 * 2 + 2 * 17 / 8  # fp32 and the bf16 weight, or the weight and 17 bits
    return gradient + moments + masters, gradient


def profile_of_rung(name, out):
    trainer, variants = RUNGS[name]
    return f"profile --trainer {trainer} --batch-size 4 --steps 20 --by op" + "".join(f" --variant {v}" for v in variants.split()) + f" --out {out}"


def commands_of(record):
    """What makes a record, as somebody types it; none for several-gpus.json, whose script knows."""
    if record in KERNELS:
        return [f"kernels {KERNELS[record]} --seed 7 --json"]
    return [profile_of_rung(rung, f"{rung}.json") for rung in RUNGS] if record == UPDATE else []


def update_row(rung, profile):
    """What the ladder of the update shows of one profile."""
    ops = [o for o in profile["ops"] if o["op"] in ("adamw", "grad_norm")]
    sums = {op: [o for o in ops if o["op"] == op] for op in ("adamw", "grad_norm")}
    row = {"rung": rung, "at": profile["run"]["profiled_at"], "git_revision": profile["run"]["git_revision"], "device": profile["environment"]["gpu"],
           "driver": profile["environment"]["versions"]["cuda_driver"], "batch_size": profile["run"]["batch_size"],
           "copy_bytes_per_s": profile["ceilings"].get("copy_bytes_per_s")}
    for op, parts in sums.items():
        row[op] = {k: sum(o[k] for o in parts) for k in ("launches", "time_ns", "dram_read_bytes", "dram_write_bytes")}
    return row


class Failed(Exception):
    def __init__(self, command, code):
        super().__init__(f"{command}: exit {code}; its record is not made")
        self.code = code if code > 0 else 1


def run(program, arguments, folder):
    done = subprocess.run([program, *shlex.split(arguments)], stdout=subprocess.PIPE, cwd=folder, check=False)
    if done.returncode != 0:
        raise Failed(f"{program} {arguments}", done.returncode)
    return done.stdout


def make(record, program, out):
    with tempfile.TemporaryDirectory() as folder:
        if record == UPDATE:
            rows = []
            for rung in RUNGS:
                run(program, profile_of_rung(rung, f"{rung}.json"), folder)
                rows.append(update_row(rung, json.loads((pathlib.Path(folder) / f"{rung}.json").read_text(encoding="utf-8"))))
            made = {"schema": "stepscope.learn.update/1", "rungs": rows}
        else:
            made = json.loads(run(program, commands_of(record)[0], folder))
    (out / record).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def main(arguments):
    records = [*KERNELS, UPDATE]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME.json", help="make these records (default: those that measured/ lacks)")
    parser.add_argument("--again", action="store_true", help="make records that are there, too")
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    parser.add_argument("--program", default=str(HERE.parent.parent / "stepscope"), help="run this program (default: ./stepscope of the repository)")
    parser.add_argument("--out", type=pathlib.Path, default=MEASURED, help="write the records into this folder (default: measured/)")
    flags = parser.parse_args(arguments)
    if unknown := [n for n in flags.names if n not in records]:
        parser.error(f"{unknown[0]}: expected one of {', '.join(records)}")
    if not flags.list and not flags.out.is_dir():
        parser.error(f"--out {flags.out}: no folder")
    program = pathlib.Path(flags.program).resolve()
    if not flags.list and not (program.is_file() and os.access(program, os.X_OK)):
        parser.error(f"--program {flags.program}: no program")
    failed = 0
    for record in flags.names or records:
        if not flags.names and not flags.again and (MEASURED / record).exists():
            continue
        for command in commands_of(record):
            print(f"{record}: ./stepscope {command}", flush=True)
        if not flags.list:
            try:
                make(record, str(program), flags.out)
            except Failed as e:
                print(e, file=sys.stderr)
                failed = failed or e.code
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
