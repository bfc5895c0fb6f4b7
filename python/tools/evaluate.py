"""One checkpoint and one evaluation set: `stepscope eval` by its trainers beside PyTorch in fp64, fp32 and bf16 autocast, item by item.

    python3 python/tools/evaluate.py questions TEXT --count 200 --bytes 0:105000 > questions.jsonl
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
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
try:
    import torch

    import stepscope
    from stepscope.models import GPT, GPTConfig
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    torch = None  # `questions` needs none
from wrong import Wrong, refuse_out_and_device  # noqa: E402

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
        begin = f.read(1024)
    if len(begin) < 1024:
        raise Wrong(f"{path}: {len(begin)} bytes, expected {what} of llm.c, whose header has 1024")
    header = array.array("i", begin)
    if header[:2].tolist() != wanted:
        raise Wrong(f"{path}: begins with {header[:2].tolist()}, expected {what} of llm.c, {wanted}")
    return header


def behind_the_header(path, kind):
    with open(path, "rb") as f:
        f.seek(1024)
        found = f.read()
    if len(found) % array.array(kind).itemsize:
        raise Wrong(f"{path}: {len(found)} bytes behind the header, which are no whole number of its elements; expected a whole file")
    return array.array(kind, found)


def read_checkpoint(path):
    """GPT in fp64 with the checkpoint's parameters; its vocabulary without the padding."""
    positions, V, L, NH, C, Vp = begins_with(path, [CHECKPOINT, 3], "an fp32 checkpoint")[2:8]
    if min(positions, V, L, NH, C) < 1 or Vp < V or C % NH:
        raise Wrong(f"{path}: its header has the shape {positions} positions, {V} of {Vp} tokens, {L} layers, {NH} heads, {C} channels, which no GPT-2 has")
    values = behind_the_header(path, "f")
    of_block = {"ln_1.weight": (C,), "ln_1.bias": (C,), "attn.c_attn.weight": (3 * C, C), "attn.c_attn.bias": (3 * C,),
                "attn.c_proj.weight": (C, C), "attn.c_proj.bias": (C,), "ln_2.weight": (C,), "ln_2.bias": (C,), "mlp.c_fc.weight": (4 * C, C),
                "mlp.c_fc.bias": (4 * C,), "mlp.c_proj.weight": (C, 4 * C), "mlp.c_proj.bias": (C,)}
    shapes = {"wte.weight": (Vp, C), "wpe.weight": (positions, C), **{f"h.{i}.{n}": s for n, s in of_block.items() for i in range(L)},
              "ln_f.weight": (C,), "ln_f.bias": (C,)}
    sizes = [math.prod(s) for s in shapes.values()]
    if sum(sizes) != len(values):
        raise Wrong(f"{path}: {len(values)} parameters, expected {sum(sizes)} of its shape")
    values = torch.frombuffer(values, dtype=torch.float32)
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

    def take(n):
        nonlocal at
        if at + n > len(words):
            raise Wrong(f"{path}: ends within example {len(found)}")
        at += n
        return words[at - n:at].tolist()

    while at < len(words):
        start, _, _, label, completions, n = take(6)
        context = take(n)
        endings = [take(take(1)[0]) for _ in range(completions)]
        if start != 65535 or label >= completions or not context or not all(endings):
            raise Wrong(f"{path}: example {len(found)} is none: it starts with {start}, expected 65535, a label below its {completions} completions, "
                        "and a context and completions of one token or more")
        found.append((label, context, endings))
    if not found:
        raise Wrong(f"{path}: no example, expected one or more")
    return found


def check_fit(model, examples, questions_file):
    """What an embedding would answer with an IndexError."""
    positions, tokens = model.config.block_size, model.config.vocab_size
    for i, (_, context, endings) in enumerate(examples):
        longest, largest = len(context) + max(map(len, endings)) - 1, max(max(context), *map(max, endings))
        if longest > positions:
            raise Wrong(f"{questions_file}: example {i} needs {longest} positions, the checkpoint has {positions}")
        if largest >= tokens:
            raise Wrong(f"{questions_file}: example {i} has token {largest}, the checkpoint's vocabulary ends with {tokens - 1}")


# ---- PyTorch's answers ------------------------------------------------------------------------------------------------


def losses(model, examples, *, autocast=False, batch=16):
    """[[mean loss of each completion]], the softmax in fp64 from the logits as the model gives them."""
    device = next(model.parameters()).device
    rows = [(e, c, context, ending) for e, (_, context, endings) in enumerate(examples) for c, ending in enumerate(endings)]
    length = max(len(context) + len(ending) - 1 for _, _, context, ending in rows)
    found = [[math.nan] * len(endings) for _, _, endings in examples]
    for begin in range(0, len(rows), batch):
        part = rows[begin:begin + batch]
        tokens = torch.tensor([(context + ending)[:-1] + [0] * (length - len(context) - len(ending) + 1) for _, _, context, ending in part])
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            logits = model(tokens.to(device))[0]
        for row, (e, c, context, ending) in zip(logits, part):
            of_ending = row[len(context) - 1:len(context) - 1 + len(ending)].double().log_softmax(-1)
            found[e][c] = -of_ending.gather(1, torch.tensor(ending, device=device)[:, None]).mean().item()
    return found


def torch_arms(model, examples, device):
    """{precision: losses} of a model in fp64; "replaced": autocast with every op replaced, where a device and the library are there."""
    model = model.to(device).eval()
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
    if done.returncode not in (0, 2):  # the trainer's: logits that are no numbers, say
        raise SystemExit(f"{program} eval --trainer {trainer}: exit {done.returncode}")
    if done.returncode:
        raise Wrong(f"{program} eval --trainer {trainer}: it takes these arguments or files for wrong ones, and says above why")
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
    examples, model = read_set(questions_file), read_checkpoint(checkpoint)
    check_fit(model, examples, questions_file)
    if not shutil.which(program):
        raise Wrong(f"--program {program}: no program there, expected stepscope (build/release/bin/stepscope)")
    labels, arms = [e[0] for e in examples], torch_arms(model, examples, device)
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


def part_of(text):
    """FROM:TO as a slice."""
    found = re.fullmatch(r"(\d*):(\d*)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: expected FROM:TO, two numbers of bytes of which either may be left out")
    return slice(*(int(n) if n else None for n in found.groups()))


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return int(text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("questions")
    ask.add_argument("text", type=pathlib.Path)
    ask.add_argument("--count", type=positive, default=200)
    ask.add_argument("--bytes", type=part_of, default="0:", help="FROM:TO, the part of the text")
    beside = commands.add_parser("compare")
    beside.add_argument("checkpoint", type=pathlib.Path)
    beside.add_argument("set", type=pathlib.Path)
    beside.add_argument("--program", required=True, help="the program stepscope")
    beside.add_argument("--trainers", default="reference,fp32,mixed")
    beside.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch and torch.cuda.is_available() else "cpu")
    beside.add_argument("--out", type=pathlib.Path, help="evaluation.json is written into this folder")
    flags = parser.parse_args(arguments)
    try:
        return asked_questions(flags) if flags.command == "questions" else compared(flags)
    except Wrong as e:
        print(f"evaluate.py: {e}", file=sys.stderr)
    except OSError as e:
        print(f"evaluate.py: {e.filename}: {e.strerror}" if e.filename else f"evaluate.py: {e}", file=sys.stderr)
    return 2


def asked_questions(flags):
    made = questions(flags.text.read_bytes()[flags.bytes].decode("utf-8", "ignore"), flags.count)
    if not made:
        raise Wrong(f"{flags.text}: no question in this part of it, expected lines of five to fourteen words behind three others")
    for question in made:
        print(json.dumps(question))
    return 0


def compared(flags):
    if torch is None:
        print(f"evaluate.py: compare needs PyTorch, which {sys.executable} has not; `questions` does without", file=sys.stderr)
        return 3
    trainers = flags.trainers.split(",")
    if unknown := [t for t in trainers if t not in PRECISION]:
        raise Wrong(f"--trainers {unknown[0]}: expected {', '.join(PRECISION)}")
    refuse_out_and_device(flags)
    record = compare(flags.program, flags.checkpoint, flags.set, trainers, flags.device)
    print(text_of(record))
    if flags.out:
        (flags.out / "evaluation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if all(r["ok"] in (None, True) for r in record["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
