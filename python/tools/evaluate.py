"""One checkpoint and one evaluation set: `stepscope eval` by its trainers beside PyTorch in fp64, fp32 and bf16 autocast, item by item.

    python3 python/tools/evaluate.py questions TEXT --count 200 --bytes 0:110000 > questions.jsonl
    stepscope data --eval-set hellaswag questions.jsonl --vocab vocab.bpe --out set.bin
    python3 python/tools/evaluate.py compare CHECKPOINT set.bin --program build/release/bin/stepscope --trainers reference,fp32,mixed [--out FOLDER]

A question is a passage of the text, and its right ending is the line that follows there; the wrong ones are that line's words in other orders.
`compare` holds each trainer's losses to twice the largest error that PyTorch makes in the same precision, both against fp64, and its answers
to fp64's, but where two completions are nearer to each other than that. Exit 1: a trainer is outside. 2: wrong arguments or files.
"""
import argparse
import array
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch  # noqa: E402

import stepscope  # noqa: E402
from stepscope.models import GPT, GPTConfig  # noqa: E402

CHECKPOINT, SET = 20240326, 20240522
# Which of PyTorch's precisions is a trainer's, and how far a loss may be from fp64's by the rounding of that type alone, as a part of it.
PRECISION = {"reference": ("fp32", 2.0**-20), "fp32": ("fp32", 2.0**-20), "mixed": ("autocast", 2.0**-8)}


# ---- questions --------------------------------------------------------------------------------------------------------


def questions(text, count, seed=1, context_lines=3):
    """[{ctx, endings, label}] as HellaSwag has them. Lines of five to fourteen words, so that there are other orders."""
    draw, lines = random.Random(seed), text.split("\n")
    places = [i for i in range(context_lines, len(lines)) if 5 <= len(lines[i].split()) <= 14 and len(set(lines[i].split())) > 4]
    draw.shuffle(places)
    made = []
    for i in sorted(places[:count]):
        words, endings = lines[i].split(), {" ".join(lines[i].split())}
        while len(endings) < 4:
            draw.shuffle(words)
            endings.add(" ".join(words))
        endings = sorted(endings)
        draw.shuffle(endings)
        made.append({"ctx": "\n".join(lines[i - context_lines:i]) + "\n", "endings": endings, "label": endings.index(" ".join(lines[i].split()))})
    return made


# ---- files of llm.c, read without stepscope ---------------------------------------------------------------------------


def begins_with(path, wanted, what):
    """The header's words, of which the first two must be these."""
    with open(path, "rb") as f:
        header = array.array("i", f.read(1024))
    if header[:2].tolist() != wanted:
        raise SystemExit(f"{path}: begins with {header[:2].tolist()}, expected {what} of llm.c, {wanted}")
    return header


def behind_the_header(path, kind):
    with open(path, "rb") as f:
        f.seek(1024)
        return array.array(kind, f.read())


def read_checkpoint(path):
    """GPT in fp64 with the checkpoint's parameters; its vocabulary without the padding."""
    positions, V, L, NH, C, Vp = begins_with(path, [CHECKPOINT, 3], "an fp32 checkpoint")[2:8]
    values = torch.frombuffer(behind_the_header(path, "f"), dtype=torch.float32)
    of_block = {"ln_1.weight": (C,), "ln_1.bias": (C,), "attn.c_attn.weight": (3 * C, C), "attn.c_attn.bias": (3 * C,),
                "attn.c_proj.weight": (C, C), "attn.c_proj.bias": (C,), "ln_2.weight": (C,), "ln_2.bias": (C,), "mlp.c_fc.weight": (4 * C, C),
                "mlp.c_fc.bias": (4 * C,), "mlp.c_proj.weight": (C, 4 * C), "mlp.c_proj.bias": (C,)}
    shapes = {"wte.weight": (Vp, C), "wpe.weight": (positions, C), **{f"h.{i}.{n}": s for n, s in of_block.items() for i in range(L)},
              "ln_f.weight": (C,), "ln_f.bias": (C,)}
    sizes = [math.prod(s) for s in shapes.values()]
    if sum(sizes) != len(values):
        raise SystemExit(f"{path}: {len(values)} parameters, expected {sum(sizes)} of its shape")
    state = {"transformer." + name: part.view(shape) for (name, shape), part in zip(shapes.items(), values.split(sizes))}
    state["transformer.wte.weight"] = state["transformer.wte.weight"][:V]
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model = GPT(GPTConfig(vocab_size=V, block_size=positions, n_layer=L, n_head=NH, n_embd=C))
    model.load_state_dict(state)
    return model.double()


def read_set(path):
    """[(label, context, [completion, ...])]"""
    begins_with(path, [SET, 1], "an evaluation set")
    words, at, found = behind_the_header(path, "H"), 0, []
    while at < len(words):
        label, completions, n = words[at + 3:at + 6]
        at += 6
        context, at, endings = words[at:at + n].tolist(), at + n, []
        for _ in range(completions):
            endings.append(words[at + 1:at + 1 + words[at]].tolist())
            at += 1 + words[at]
        found.append((label, context, endings))
    return found


# ---- PyTorch's answers ------------------------------------------------------------------------------------------------


@torch.no_grad()
def losses(model, examples, *, autocast=False, batch=16):
    """[[mean loss of each completion]], the softmax in fp64 from the logits as the model gives them."""
    device = next(model.parameters()).device
    rows = [(e, c, context, ending) for e, (_, context, endings) in enumerate(examples) for c, ending in enumerate(endings)]
    length = max(len(context) + len(ending) - 1 for _, _, context, ending in rows)
    found = [[math.nan] * len(endings) for _, _, endings in examples]
    for begin in range(0, len(rows), batch):
        part = rows[begin:begin + batch]
        tokens = torch.tensor([(context + ending)[:-1] + [0] * (length - len(context) - len(ending) + 1) for _, _, context, ending in part])
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            logits = model(tokens.to(device))[0]
        for row, (e, c, context, ending) in zip(logits, part):
            of_ending = row[len(context) - 1:len(context) - 1 + len(ending)].double().log_softmax(-1)
            found[e][c] = -of_ending.gather(1, torch.tensor(ending, device=device)[:, None]).mean().item()
    return found


def torch_arms(checkpoint, examples, device):
    """{precision: losses}; "replaced": autocast with every op replaced, where a device and the library are there."""
    model = read_checkpoint(checkpoint).to(device).eval()
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    arms = {"fp64": losses(model, examples), "fp32": losses(model.float(), examples)}
    torch.backends.cuda.matmul.allow_tf32 = tf32
    arms["autocast"] = losses(model, examples, autocast=True)
    if device == "cuda" and not stepscope.why_missing():
        stepscope.replace(model)
        arms["replaced"] = losses(model, examples, autocast=True)
    return arms


def eval_by(program, trainer, checkpoint, questions_file, folder):
    """(losses, result) of `stepscope eval`."""
    items = pathlib.Path(folder) / f"{trainer}.jsonl"
    done = subprocess.run([program, "eval", checkpoint, questions_file, "--trainer", trainer, "--json", "--items", items, "--batch-size", "16"],
                          stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"stepscope eval --trainer {trainer}: exit {done.returncode}")
    return [json.loads(line)["loss"] for line in items.read_text(encoding="utf-8").splitlines()], json.loads(done.stdout)


# ---- the comparison ---------------------------------------------------------------------------------------------------


def answer(of_item):
    return of_item.index(min(of_item))


def errors(found, truth):
    return [abs(a - b) for f, t in zip(found, truth) for a, b in zip(f, t)]


def row_of(name, found, arms, labels):
    """What the table shows of one arm; ok: None for PyTorch's own, which nothing is asked of."""
    truth = arms["fp64"]
    error = max(errors(found, truth))
    row = {"arm": name, "correct": sum(answer(f) == label for f, label in zip(found, labels)), "error": error,
           "mean_error": sum(errors(found, truth)) / len(errors(found, truth)), "budget": None, "other_answers": [], "ok": None}
    precision, floor = PRECISION.get(name, ("autocast", 2.0**-8) if name == "replaced by stepscope" else (None, 0))
    for i, (f, t) in enumerate(zip(found, truth)):
        if answer(f) != answer(t):
            row["other_answers"].append({"index": i, "margin": t[answer(f)] - min(t)})
    if precision:
        row["budget"] = max(2 * max(errors(arms[precision], truth)), floor * max(map(max, truth)))
        # `not … <= …`: a loss that is NaN fails.
        row["ok"] = bool(all(e <= row["budget"] for e in errors(found, truth)) and all(o["margin"] <= 2 * row["budget"] for o in row["other_answers"]))
    return row


def compare(program, checkpoint, questions_file, trainers, device):
    examples = read_set(questions_file)
    labels, arms = [e[0] for e in examples], torch_arms(checkpoint, examples, device)
    named = {"fp64": "PyTorch fp64", "fp32": "PyTorch fp32", "autocast": "PyTorch bf16 autocast", "replaced": "replaced by stepscope"}
    rows = [row_of(named[k], found, arms, labels) for k, found in arms.items()]
    with tempfile.TemporaryDirectory() as folder:
        for trainer in trainers:
            found, result = eval_by(program, trainer, checkpoint, questions_file, folder)
            row = row_of(trainer, found, arms, labels)
            if row["correct"] != result["correct"] or len(found) != result["examples"]:
                raise SystemExit(f"{trainer}: its items have {row['correct']} right answers of {len(found)}, its result says {result['correct']}")
            rows.append({**row, "on": result["device"]})
    return {"part": "evaluation", "examples": len(examples), "rows": rows, "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "device": torch.cuda.get_device_name() if device == "cuda" else "CPU"}


def text_of(record):
    lines = [f"{record['examples']} questions, PyTorch {record['torch']} on {record['device']}; error: of a completion's mean loss, against fp64"]
    for r in record["rows"]:
        budget = f" of {r['budget']:.2e}" if r["budget"] else ""
        others = f", {len(r['other_answers'])} answered otherwise (margin {max(o['margin'] for o in r['other_answers']):.1e})" if r["other_answers"] else ""
        lines.append(f"{r['arm']:24} {r['correct']:5} right   error {r['error']:.2e}{budget}{others}{'' if r['ok'] in (None, True) else '   OUTSIDE'}")
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("questions")
    ask.add_argument("text", type=pathlib.Path)
    ask.add_argument("--count", type=int, default=200)
    ask.add_argument("--bytes", default="0:", help="FROM:TO, the part of the text")
    beside = commands.add_parser("compare")
    beside.add_argument("checkpoint", type=pathlib.Path)
    beside.add_argument("set", type=pathlib.Path)
    beside.add_argument("--program", required=True, help="the program stepscope")
    beside.add_argument("--trainers", default="reference,fp32,mixed")
    beside.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    beside.add_argument("--out", type=pathlib.Path, help="evaluation.json is written into this folder")
    flags = parser.parse_args(arguments)
    if flags.command == "questions":
        begin, end = (int(n) if n else None for n in flags.bytes.split(":"))
        for question in questions(flags.text.read_bytes()[begin:end].decode("utf-8", "ignore"), flags.count):
            print(json.dumps(question))
        return 0
    trainers = flags.trainers.split(",")
    if unknown := [t for t in trainers if t not in PRECISION]:
        parser.error(f"--trainers {unknown[0]}: expected {', '.join(PRECISION)}")
    record = compare(flags.program, flags.checkpoint, flags.set, trainers, flags.device)
    print(text_of(record))
    if flags.out:
        (flags.out / "evaluation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if all(r["ok"] in (None, True) for r in record["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
