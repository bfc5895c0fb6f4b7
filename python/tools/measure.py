"""Measures GPT-2 124M of PyTorch with ops replaced, for docs/python.md: a table of each part on stdout, JSON into PART.json of a folder.

    python3 python/tools/measure.py check bench compiled losses own thunder step [--out FOLDER] [--batch 16] [--tokens 1024] ...
"""
import argparse
import array
import json
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests"), str(HERE)]
import torch  # noqa: E402

import curves as training_curves  # noqa: E402
import stepscope  # noqa: E402
from stepscope._variants import choose  # noqa: E402
from wrong import Wrong, refuse_out_and_device  # noqa: E402
from stepscope.models import GPT, GPTConfig  # noqa: E402

BF16 = torch.bfloat16


def model_of(arguments, seed=0):
    torch.manual_seed(seed)
    if arguments.model == "hf":
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, n_layer=arguments.layers, use_cache=False))
    else:
        model = GPT(GPTConfig(n_layer=arguments.layers))
    return model.to(arguments.device).train()


def batch_of(arguments, seed=0, vocabulary=50257):
    generator = torch.Generator().manual_seed(seed)
    tokens, targets = (torch.randint(vocabulary, (arguments.batch, arguments.tokens), generator=generator).to(arguments.device) for _ in range(2))
    return {"input_ids": tokens, "labels": targets} if arguments.model == "hf" else (tokens, targets)


def variants_of(arguments):
    """--variants as replace() takes them."""
    if arguments.variants is None:
        return {}
    return {op: {"default": True, "off": False}.get(variant, variant) for op, variant in (v.split("=", 1) for v in arguments.variants.split(","))}


def autocast(arguments):
    return torch.autocast(arguments.device, dtype=BF16)


def adamw(parameters):
    parameters = list(parameters)
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=parameters[0].is_cuda)


def check(arguments):
    model = model_of(arguments)
    report = stepscope.replace(model, **variants_of(arguments))
    print(report)
    with autocast(arguments):
        try:
            result = stepscope.check(model, batch_of(arguments))
            rows, shown = result.rows, str(result)
        except stepscope.CheckFailed as e:
            rows, shown = e.rows, str(e)
    print(shown)
    return {"ok": all(r.ok for r in rows), "rows": [vars(r) for r in rows]}


def replaced_under_compile(model, arguments, **more):
    """The ops named by --variants, else those that replace() takes for compiled programs."""
    return stepscope.replace(model, compiled=True, **variants_of(arguments), **more)


def told(report):
    """One line of what was replaced."""
    print(", ".join(sorted({f"{s.op}: {s.variants}" for s in report.replaced})), flush=True)
    return report


def bench_rows(result):
    print(result, flush=True)
    return [{**vars(r), "verdict": r.verdict} for r in result.rows]


def compiled(arguments):
    """The step of the compiled model with and without the ops that are worth it there."""
    model = model_of(arguments)
    report = told(replaced_under_compile(model, arguments))
    return {"rows": bench_rows(stepscope.bench(model, batch_of(arguments), report=report, autocast=BF16, optimizer=adamw, ops=False,
                                               steps=("compiled",), blocks=arguments.blocks))}


def bench(arguments):
    """Every op alone and the eager step; --compiled: also against Inductor's ops, and the compiled step as compiled() has it."""
    model = model_of(arguments)
    asked = {"adamw": True, "layernorm": True, "gelu": True, "attention": True, "loss": True, **variants_of(arguments)}
    report = told(stepscope.replace(model, **asked))
    rows = bench_rows(stepscope.bench(model, batch_of(arguments), report=report, autocast=BF16, optimizer=adamw, compiled=arguments.compiled,
                                      steps=("eager",), blocks=arguments.blocks))
    del model, report
    return {"rows": rows + (compiled(arguments)["rows"] if arguments.compiled else [])}


def successors(generator, vocabulary=50257, each=4):
    """A language that can be learnt: every token is followed by one of a few."""
    return torch.randint(vocabulary, (vocabulary, each), generator=generator)


def sequences(table, arguments, generator):
    """(steps * batch, tokens + 1) of it, from 256 words."""
    rows = [torch.randint(256, (arguments.steps * arguments.batch,), generator=generator)]
    for _ in range(arguments.tokens):
        pick = torch.randint(table.shape[1], rows[-1].shape, generator=generator)
        rows.append(table[rows[-1], pick] % 256)
    return torch.stack(rows, 1)


def passages(arguments, generator):
    """(steps * batch, tokens + 1) of the shards' tokens, all of it in a drawn order, then all of it in another."""
    words = array.array("H")
    words.frombytes(arguments.data.read_bytes()[1024:])
    rows = torch.tensor(words, dtype=torch.int64).unfold(0, arguments.tokens + 1, arguments.tokens)
    order = [torch.randperm(len(rows), generator=generator) for _ in range(-(-arguments.steps * arguments.batch // len(rows)))]
    return rows[torch.cat(order)[:arguments.steps * arguments.batch]]


def curve_of(arguments, seed, data, replaced):
    """(losses, ms a step) of one training."""
    model = model_of(arguments, seed)
    optimizer = adamw(model.parameters())
    if replaced:
        report = stepscope.replace(model, optimizer=optimizer, **variants_of(arguments))
        if seed == 0:
            told(report)
    found, began = [], 0.0
    for i, rows in enumerate(data.split(arguments.batch)):
        if i == 10 and arguments.device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter() if i == 10 else began
        with autocast(arguments):
            if arguments.model == "hf":
                loss = model(input_ids=rows[:, :-1], labels=rows[:, :-1], shift_labels=rows[:, 1:].contiguous()).loss
            else:
                loss = model(rows[:, :-1], rows[:, 1:])[1]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    found = torch.stack(found).tolist()  # waits for the device
    return found, (time.perf_counter() - began) * 1e3 / (len(found) - 10) if len(found) > 10 else None


def losses(arguments):
    """Training losses of the same seeds: with PyTorch's ops, with PyTorch's again (what its own sums without an order do), and with ours."""
    table = successors(torch.Generator().manual_seed(0))
    curves, times = {"pytorch": [], "again": [], "replaced": []}, {"pytorch": [], "again": [], "replaced": []}
    for seed in range(arguments.seeds):
        generator = torch.Generator().manual_seed(100 + seed)
        data = (passages(arguments, generator) if arguments.data else sequences(table, arguments, generator)).to(arguments.device)
        for arm in curves:
            curve, ms = curve_of(arguments, seed, data, arm == "replaced")
            curves[arm].append(curve)
            times[arm].append(ms)
            print(f"{arm:9} seed {seed}: first {curve[0]:.4f}, mean of the last {training_curves.WINDOW} {training_curves.mean_of_the_last(curve):.4f}"
                  + (f", {ms:.1f} ms a step" if ms else ""), flush=True)
    print(training_curves.sentence(curves))
    return {"curves": curves, "ms_by_arm": times, "data": arguments.data.name if arguments.data else "a language of 256 words",
            "parts_outside_the_spread": training_curves.outside(curves)}


def own(arguments):
    """A user's Triton layernorm, right and wrong."""
    from triton_layernorm import layernorm
    answer = {}

    @stepscope.op("layernorm")
    def right(x, weight, bias):
        return layernorm(x, weight, bias, 1e-5)

    print(right.report)
    row = right.bench(shape=(arguments.batch * arguments.tokens, 768), dtype=BF16)
    print(stepscope._bench.BenchReport([row]))
    answer["right"] = {"rows": [vars(r) for r in right.report.rows], "bench": vars(row)}
    try:
        stepscope.op("layernorm")(lambda x, weight, bias: layernorm(x, weight, bias, 0.0))
        answer["wrong"] = "was accepted"
    except stepscope.CheckFailed as e:
        print(e)
        answer["wrong"] = [vars(r) for r in e.rows if not r.ok]
    return answer


def thunder(arguments):
    """The step of Lightning Thunder's program with its default executors, and with ours before them."""
    import thunder as lightning
    batch, arms = batch_of(arguments), []
    for executors in ((), (stepscope.thunder.executor,)):
        model = model_of(arguments)
        program = lightning.jit(model, executors=[*executors, *lightning.get_default_executors()])
        arms.append(stepscope._bench._step(program, batch, adamw(model.parameters()), lambda: autocast(arguments)))
        arms[-1]()
        print(f"executors {[e.name for e in lightning.compile_data(program).executors_list]}", flush=True)
    taken = stepscope.thunder.report(program)
    print(taken)
    row = stepscope._bench.paired("step of Lightning Thunder", f"{arguments.batch}x{arguments.tokens}", "eager", *arms,
                                  cuda=arguments.device == "cuda", blocks=arguments.blocks, block_ms=200.0)
    return {"thunder": lightning.__version__, "taken": [vars(r) for r in taken.rows], "rows": bench_rows(stepscope._bench.BenchReport([row]))}


def step(arguments):
    """Training steps for the collector: stepscope profile --step-range step -- python3 python/tools/measure.py step"""
    model = model_of(arguments)
    optimizer = adamw(model.parameters())
    if arguments.replaced and arguments.compiled:
        told(replaced_under_compile(model, arguments, optimizer=optimizer))
    elif arguments.replaced:
        told(stepscope.replace(model, optimizer=optimizer, **variants_of(arguments)))
    batch = batch_of(arguments)
    runs = torch.compile(model) if arguments.compiled else model

    def one():
        with autocast(arguments):
            answer = runs(**batch) if isinstance(batch, dict) else runs(*batch)
        (answer.loss if arguments.model == "hf" else answer[1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        one()
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        with stepscope.profile("step"):
            one()
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    return {"ms_per_step": (time.perf_counter() - begin) * 1e3 / arguments.steps}


class TooLong(Exception):
    pass


def limited(part, arguments):
    """The part's answer, or what stopped it."""
    def stop(*_):
        raise TooLong(f"stopped after {arguments.seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(arguments.seconds)
    begin = time.perf_counter()
    try:
        answer = globals()[part](arguments)
    except Exception as e:  # the next part is another measurement
        if len(arguments.parts) == 1:
            raise
        print(f"{part}: {type(e).__name__}: {str(e)[:4000]}", flush=True)
        answer = {"failed": f"{type(e).__name__}: {e}"}
    finally:
        signal.alarm(0)
    print(f"{part}: {time.perf_counter() - begin:.1f} s", flush=True)
    return answer


def refuse_wrong(arguments):
    """Arguments with which no part can run, before any of them has begun."""
    if arguments.variants is not None and not all("=" in v for v in arguments.variants.split(",")):
        raise Wrong(f"--variants {arguments.variants}: expected OP=VARIANT, several of them with commas between")
    try:
        choose(variants_of(arguments))
    except stepscope.Refused as e:
        raise Wrong(f"--variants {arguments.variants}: {e}")
    if arguments.steps < 1:
        raise Wrong(f"--steps {arguments.steps}: expected at least 1")
    if "losses" in arguments.parts and arguments.seeds < 2:
        raise Wrong(f"--seeds {arguments.seeds}: expected at least 2 for losses, which holds ours against the spread of PyTorch's seeds")
    if arguments.data:
        try:
            with arguments.data.open("rb") as f:
                header, size = array.array("i", f.read(8)).tolist(), arguments.data.stat().st_size - 1024
        except (OSError, ValueError) as e:
            raise Wrong(f"--data {arguments.data}: {getattr(e, 'strerror', None) or e}")
        if header != [20240520, 1]:
            raise Wrong(f"--data {arguments.data}: begins with {header}, expected a token shard of llm.c, [20240520, 1]")
        if size % 2 or size // 2 <= arguments.tokens:
            raise Wrong(f"--data {arguments.data}: {max(size, 0) / 2:g} tokens, expected more than the {arguments.tokens} of a row")
    refuse_out_and_device(arguments)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=["check", "bench", "compiled", "losses", "own", "thunder", "step"])
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tag", default="", help="written behind the part in the name of its file")
    parser.add_argument("--seconds", type=int, default=600, help="limit of each part")
    parser.add_argument("--model", choices=["hf", "gpt"], default="gpt")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=pathlib.Path, help="token shard that `losses` trains on (default: a made-up language)")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--variants", help="layernorm=block_per_row,attention=default,gelu=off,...; ops that are not named stay PyTorch's, but in bench and "
                                           "where off is all that is named")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--replaced", action="store_true")
    arguments = parser.parse_args(given)
    try:
        refuse_wrong(arguments)
    except Wrong as e:
        parser.error(str(e))
    for part in arguments.parts:
        answer = {"part": part, "batch": arguments.batch, "tokens": arguments.tokens, "model": arguments.model, "layers": arguments.layers,
                  "torch": torch.__version__, "date": time.strftime("%Y-%m-%d", time.gmtime()),
                  "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"}
        answer.update(limited(part, arguments))
        if arguments.out:
            (arguments.out / f"{part}{arguments.tag}.json").write_text(json.dumps(answer, indent=1, default=str) + "\n")
        if "ms_per_step" in answer:
            print(f"{answer['ms_per_step']:.2f} ms a step")


if __name__ == "__main__":
    main()
