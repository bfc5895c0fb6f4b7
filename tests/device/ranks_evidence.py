#!/usr/bin/env python3
"""What issue 15 asks of two GPUs of one host, measured with a program that is built already.

  ranks_evidence.py PROGRAM --out FOLDER [--limit-s 240] [--seconds 6] [alone] [profile] [model] [memory] [counters]

Parts, all but `counters` unless some are named; each prints a table and leaves FOLDER/PART.json:
  alone     both GPUs alone at once, two ranks, two ranks that exchange nothing, both GPUs alone again: mixed at B=4, 16, 64 and fp32 at B=4
            (--cases mixed:4,fp32:4 for some). Step times by the clock, of the second half of --seconds after the first step of all; the slower
            GPU counts, alone as the mean of both runs. Beside it what the issue asks, and power and SM clock of both GPUs, by nvidia-smi, in
            the same seconds. What the exchange costs is the step of ranks less that of ranks that exchange nothing: the same kernels, each
            rank with its part of the update.
  profile   `profile` of two ranks that exchange nothing and of two that do, B=4 and 64: is exposed communication the loss of time? The loss is
            the untraced step of the latter less that of the former, without what is no waiting: work made slower, update, idle time. Two
            processes differ by more than a tenth of it, so --turns N profiles both N times in turns; the table has means, and the standard
            error of exposed less lost. --variant communication=all_reduce exposes the whole exchange, which is large beside that error.
            Steps are traced behind the timed ones: with many of these (--profile-steps) the GPU is warmer there, and its work slower than in the
            timed steps.
  model     `doctor --gpus 2 --links`, then `scaling` from the profile of the slower GPU against the step of two ranks, by peer at B=4 and 64 and
            by NCCL at B=4. The collectives that the model plans against those that the ranks made. Uses the profiles of `profile` where they are.
            What was exposed and what was slower work, measured, are of one GPU, as a rank and alone.
  memory    what two ranks planned and took, mixed at B=4, by zero1_ahead and by all_reduce_overlapped; moments against moments.
  counters  `profile --gpus 2` with hardware counters, by peer and by NCCL: how many kernels have them, and how the run ended.
Exit 1 when a command failed, a part was out of time, or a check failed; the tables say which. What the issue asks of speed is no check: the
table has it beside the measurement. Needs only Python's standard library.
"""
import argparse
import collections
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

STEP = re.compile(rb"^(?:\[rank (\d+)\] )?step +\d+")
ASKED = {("mixed", 4): 97.0, ("mixed", 16): 98.5, ("mixed", 64): 98.5, ("fp32", 4): 98.0}
MORE_THAN_ENOUGH = "1000000"


class Bench:
    def __init__(self, o):
        self.o, self.folder, self.failed, self.end = o, Path(o.out), [], time.monotonic() + o.limit_s
        self.folder.mkdir(parents=True, exist_ok=True)

    def fail(self, text):
        self.failed.append(text)
        print(f"FAILED: {text}", flush=True)

    def in_time(self, seconds, what):
        if time.monotonic() + seconds <= self.end:
            return True
        self.fail(f"{what}: out of time")
        return False

    def keep(self, part, value):
        (self.folder / f"{part}.json").write_text(json.dumps(value, indent=1) + "\n")

    def run(self, name, arguments, gpu=None):
        """One command to its end, its output in FOLDER/NAME.log; whether it went well."""
        return self.run_all({name: (arguments, gpu)})

    def run_all(self, commands):
        """Several at once, each on the GPU that is named."""
        started = {}
        for name, (arguments, gpu) in commands.items():
            log = open(self.folder / f"{name}.log", "w")
            started[name] = (subprocess.Popen([self.o.program, *arguments], stdout=log, stderr=subprocess.STDOUT, env=environment(gpu),
                                              start_new_session=True), log)
        good = True
        for name, (process, log) in started.items():
            try:
                code = process.wait(max(1, self.end + 20 - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = f"none, it was killed after the time limit ({process.wait()})"
            log.close()
            if code != 0:
                good = False
                last = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()[-3:]
                self.fail(f"{name}: exit code {code}: {' | '.join(last)}")
        return good

    def document(self, name):
        return json.loads((self.folder / f"{name}.json").read_text())


def environment(gpu):
    env = dict(os.environ)
    if gpu is not None:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    return env


def table(header, rows):
    widths = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    for r in [header, *rows]:
        print("  ".join(str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(r, widths))))
    print(flush=True)


# ---- alone and as ranks, in turns


class Stepping:
    """A training process and when its step lines came."""

    def __init__(self, program, arguments, gpu=None):
        # A pipe would fill whole buffers before a line arrives.
        self.process = subprocess.Popen(["stdbuf", "-oL", program, "train", *arguments, "--steps", MORE_THAN_ENOUGH], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment(gpu), start_new_session=True)
        self.times_of, self.words = {0: []}, []  # by rank; most commands print the steps of one
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            if step := STEP.match(line):
                self.times_of.setdefault(int(step[1] or 0), []).append(time.monotonic())
            else:
                self.words = (self.words + [line.decode(errors="replace").rstrip()])[-3:]

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.thread.join()

    @property
    def times(self):
        return self.times_of[0]

    def ms_between(self, begin, end):
        """Of the slowest rank that prints its steps."""
        slowest = 0
        for times in self.times_of.values():
            inside = [t for t in times if begin <= t <= end]
            if len(inside) <= 10:
                return None
            slowest = max(slowest, (inside[-1] - inside[0]) * 1e3 / (len(inside) - 1))
        return slowest


class Meter:
    """Power and SM clock of every GPU, five times a second; nothing where there is no nvidia-smi."""

    def __init__(self):
        self.samples = []
        try:
            self.process = subprocess.Popen(["nvidia-smi", "--query-gpu=index,power.draw,clocks.sm", "--format=csv,noheader,nounits", "-lms", "200"],
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None
            return
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            try:
                gpu, watts, mhz = (float(x) for x in line.split(","))
            except ValueError:
                continue  # "[N/A]"
            self.samples.append((time.monotonic(), int(gpu), watts, mhz))

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.thread.join()

    def means(self, begin, end):
        """One {"gpu", "watts", "sm_mhz"} for each GPU."""
        out = []
        for gpu in sorted({s[1] for s in self.samples}):
            inside = [s for s in self.samples if s[1] == gpu and begin <= s[0] <= end]
            if inside:
                out.append({"gpu": gpu, "watts": sum(s[2] for s in inside) / len(inside), "sm_mhz": sum(s[3] for s in inside) / len(inside)})
        return out


def step_times(bench, what, commands, seconds):
    """ms a step of each command, all at once, of the second half, and what Meter says of it; None after a failure."""
    meter = Meter()
    runs = [Stepping(bench.o.program, arguments, gpu) for arguments, gpu in commands]
    try:
        while not all(r.times for r in runs):
            dead = next((r for r in runs if r.process.poll() is not None), None)
            if dead is not None or time.monotonic() > bench.end:
                if dead:
                    dead.stop()  # its last words may still be on their way
                bench.fail(f"{what}: " + (f"ended with {dead.process.returncode}: {' | '.join(dead.words)}" if dead else "no step in time"))
                return None
            time.sleep(0.02)
        begin = max(r.times[0] for r in runs)
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
    finally:
        for r in runs:
            r.stop()
        meter.stop()
    ms = [r.ms_between(begin + seconds / 2, begin + seconds) for r in runs]
    if None in ms:
        bench.fail(f"{what}: fewer than 11 steps in {seconds / 2} s: {' | '.join(w for r in runs for w in r.words)}")
        return None
    return ms, meter.means(begin + seconds / 2, begin + seconds)


def part_alone(bench):
    rows, kept, meters = [], [], []
    for trainer, batch in bench.o.cases:
        flags = ["--trainer", trainer, "--model", bench.o.model, "-b", str(batch), "-t", "1024"]
        if not bench.in_time(4 * (bench.o.seconds + 3), f"alone, {trainer} B={batch}"):
            continue
        alone, both = [(flags, 0), (flags, 1)], [*flags, "--gpus", "2"]
        measured = [step_times(bench, f"{trainer} B={batch} {words}", commands, bench.o.seconds)
                    for words, commands in (("alone", alone), ("two ranks", [(both, None)]),
                                            ("exchanging nothing", [([*both, "--exchange-nothing"], None)]), ("alone", alone))]
        if None in measured:
            continue
        (before, _), ((ranks,), beside), ((silent,), silent_meters), (after, alone_meters) = measured
        slower = [max(before), max(after)]
        share = sum(slower) / 2 / ranks * 100
        asked = ASKED.get((trainer, batch))
        kept.append({"trainer": trainer, "batch": batch, "alone_ms": [before, after], "two_ranks_ms": ranks, "of_slower_alone_pct": share,
                     "asked_pct": asked, "exchanging_nothing_ms": silent, "meters_alone": alone_meters, "meters_of_ranks": beside,
                     "meters_exchanging_nothing": silent_meters})
        for a, b, c in zip(alone_meters, beside, silent_meters):
            meters.append([f"{trainer} B={batch}, GPU {a['gpu']}", *(f"{m[k]:.0f}" for k in ("watts", "sm_mhz") for m in (a, b, c))])
        rows.append([f"{trainer} B={batch}", *(f"{ms:.3f}" for ms in [*before, ranks, silent, *after]), f"{ranks - silent:+.3f}", f"{share:.2f}%",
                     f">= {asked}%" if asked else ""])
    table(["ms per step", "GPU 0", "GPU 1", "two ranks", "nothing exchanged", "GPU 0", "GPU 1", "the exchange", "weak scaling", "asked"], rows)
    if meters:
        table(["of the same seconds", *(f"{unit} {of}" for unit in ("W", "SM MHz") for of in ("alone", "two ranks", "nothing exchanged"))], meters)
    bench.keep("alone", kept)


# ---- the loss of time and exposed communication


def profile_flags(bench, batch, out):
    return ["profile", "--trainer", "mixed", "--model", bench.o.model, "-b", str(batch), "-t", "1024", "--steps", str(bench.o.profile_steps),
            "--no-counters", "--out", str(bench.folder / f"{out}.json"), *(x for v in bench.o.variant for x in ("--variant", v))]


def one_gpu(bench, batch):
    """The name of the profile of the slower GPU, both alone at once; those of an earlier part serve again."""
    names = [f"one{gpu}-b{batch}" for gpu in (0, 1)]
    if not all((bench.folder / f"{n}.json").exists() for n in names):
        if not bench.run_all({n: (profile_flags(bench, batch, n), gpu) for gpu, n in enumerate(names)}):
            return None
    return max(names, key=lambda n: step_ns(bench.document(n)))


def alone_on(bench, batch, document):
    """The profile alone of the GPU whose passes a document of ranks shows: two GPUs differ by more than the parts that are subtracted."""
    alone = {d["environment"]["uuid"]: d for d in (bench.document(f"one{gpu}-b{batch}") for gpu in (0, 1))}
    return alone[document["environment"]["uuid"]]


def two_ranks(bench, batch, communicator, silent=False, turn=0):
    name = f"{'silent' if silent else 'two'}-{communicator}-b{batch}{f'-{turn}' if turn else ''}"
    if (bench.folder / f"{name}.json").exists():
        return name
    flags = ["--gpus", "2", "--communicator", communicator, *(["--exchange-nothing"] if silent else [])]
    return name if bench.run(name, [*profile_flags(bench, batch, name), *flags]) else None


def step_ns(document):
    return document["timing"]["step_time_ns"]["median"]


def split(step, idle, passes):
    work = sum(ns for name, ns in passes.items() if name not in ("communication", "optimizer"))
    return {"step": step, "work": work, "update": passes.get("optimizer", 0.0), "exposed": passes.get("communication", 0.0), "idle": idle}


def parts_of(document, uuid):
    """Of the GPU `uuid`: a document of ranks shows the passes of one of them, and of two documents not always the same one's."""
    for rank in document.get("ranks", []):
        if rank["uuid"] == uuid:
            passes = {p["pass"]: p["time_ns"] for p in document["rank_passes"] if p["rank"] == rank["rank"]}
            return split(rank["step_time_ns"], rank["idle_ns"], passes)
    return split(step_ns(document), document["totals"]["idle_ns"] + document["totals"].get("unattributed_ns", 0.0),
                 {p["name"]: p["time_ns"] for p in document["passes"]})


def loss_of_time(before, two):
    """Parts of two documents in ms: what two ranks lose against ranks that exchange nothing, or against one GPU, and what of it is no waiting."""
    uuid = two["environment"]["uuid"]
    a, b = parts_of(before, uuid), parts_of(two, uuid)
    d = {k: (b[k] - a[k]) * 1e-6 for k in a}
    by_steps = d["step"] - d["work"] - d["update"] - d["idle"]
    return {"before_ms": a["step"] * 1e-6, "two_ms": b["step"] * 1e-6, "longer_ms": d["step"], "inflation_ms": d["work"], "update_ms": d["update"],
            "idle_ms": d["idle"], "exposed_ms": d["exposed"], "lost_to_communication_ms": by_steps,
            "difference_pct": (d["exposed"] / by_steps - 1) * 100 if by_steps else None, "hidden_ms": two["world"]["hidden_ns"] * 1e-6}


def turns_of(bench, batch):
    """loss_of_time of each turn; who comes first alternates, because a GPU that has worked is warmer."""
    found = []
    for turn in range(bench.o.turns):
        if not bench.in_time(20, f"profile, B={batch}, turn {turn + 1} of {bench.o.turns}"):
            break
        names = {silent: two_ranks(bench, batch, "peer", silent, turn) for silent in ((True, False) if turn % 2 == 0 else (False, True))}
        if all(names.values()):
            found.append(loss_of_time(bench.document(names[True]), bench.document(names[False])))
    return found


def mean_of_turns(turns):
    mean = {k: statistics.fmean(t[k] for t in turns) for k in turns[0] if k != "difference_pct"}
    lost = mean["lost_to_communication_ms"]
    apart = [t["exposed_ms"] - t["lost_to_communication_ms"] for t in turns]
    return {**mean, "difference_pct": (mean["exposed_ms"] / lost - 1) * 100 if lost else None, "turns": len(turns),
            "difference_error_ms": statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else None}


def part_profile(bench):
    rows, kept = [], []
    for batch in bench.o.batches:
        turns = turns_of(bench, batch)
        if not turns:
            continue
        r = {"batch": batch, **mean_of_turns(turns)}
        kept.append(r)
        good = r["difference_pct"] is not None and abs(r["difference_pct"]) <= 10
        if not good:
            bench.fail(f"profile, B={batch}: exposed communication is not the loss of time within 10%")
        rows.append([f"B={batch}", *(f"{r[k]:.3f}" for k in ("before_ms", "two_ms", "longer_ms", "inflation_ms", "update_ms", "idle_ms",
                                                               "lost_to_communication_ms", "exposed_ms", "hidden_ms")),
                     "-" if r["difference_pct"] is None else f"{r['difference_pct']:+.1f}%", str(r["turns"]),
                     "-" if r["difference_error_ms"] is None else f"{r['difference_error_ms']:.3f}"])
    table(["ms", "nothing exchanged", "two", "longer", "slower work", "update", "idle", "rest: lost", "exposed", "hidden", "exposed : lost",
           "turns", "±"], rows)
    bench.keep("profile", kept)


# ---- prediction and measurement


def collectives_by_kind(rows):
    """(kind, type, bytes) -> how many. Weights that are written in place are an all_gather to the profile; losses and norms may have no size."""
    return collections.Counter((r["kind"].removesuffix("_in_place"), r.get("type"), r["bytes"]) for r in rows if r.get("kind") and r.get("bytes"))


def part_model(bench):
    links = bench.folder / "links.json"
    if not bench.in_time(40, "model") or not bench.run("doctor", ["doctor", "--gpus", "2", "--links", str(links)]):
        return
    print((bench.folder / "doctor.log").read_text(errors="replace"))
    rows, kept = [], []
    for batch, communicator in [*((b, "peer") for b in bench.o.batches), (bench.o.batches[0], "nccl")]:
        what = f"B={batch} {communicator}"
        if not bench.in_time(20, f"model, {what}"):
            continue
        one, two = one_gpu(bench, batch), two_ranks(bench, batch, communicator)
        if not one or not two:
            continue
        name = f"scaling-{communicator}-b{batch}"
        if not bench.run(name, ["scaling", str(bench.folder / f"{one}.json"), "--ceilings", str(links), "--gpus", "2", "--communicator", communicator,
                                "--json"]):
            continue
        text = (bench.folder / f"{name}.log").read_text()
        predicted = json.loads(text[text.index("{"):])["steps"][0]
        measured = bench.document(two)
        error = (predicted["time_ns"] / step_ns(measured) - 1) * 100
        planned, made = collectives_by_kind(predicted["collectives"]), collectives_by_kind(measured["collectives"])
        sized = sum(made.values())
        other = {"planned and not made": [list(k) for k in (planned - made)], "made and not planned": [list(k) for k in (made - planned)]}
        if sized and made - planned:
            bench.fail(f"model, {what}: the ranks made collectives that the model does not plan: {other}")
        if abs(error) > 3:
            bench.fail(f"model, {what}: {error:+.1f}%, asked are 3%")
        ms = {k: predicted[k] * 1e-6 for k in ("time_ns", "work_ns", "tail_ns", "head_ns", "norm_ns", "inflation_ns", "awake_ns", "hidden_ns", "straggler_ns")}
        parts = loss_of_time(alone_on(bench, batch, measured), measured)
        kept.append({"batch": batch, "communicator": communicator, "predicted": predicted, "measured_ns": step_ns(measured), "error_pct": error,
                     "measured_parts": parts, "collectives": other, "collectives_with_a_size": sized})
        rows.append([what, f"{step_ns(bench.document(one)) * 1e-6:.3f}", f"{ms['time_ns']:.3f}", f"{parts['two_ms']:.3f}", f"{error:+.2f}%",
                     f"{ms['tail_ns'] + ms['head_ns'] + ms['norm_ns']:.3f}", f"{parts['exposed_ms']:.3f}", f"{ms['inflation_ns'] + ms['awake_ns']:.3f}",
                     f"{parts['inflation_ms']:.3f}", f"{ms['hidden_ns']:.3f}", f"{parts['hidden_ms']:.3f}"])
    table(["ms", "one", "predicted", "measured", "error", "exposed: p.", "m.", "slower work: p.", "m.", "hidden: p.", "m."], rows)
    bench.keep("model", kept)


# ---- memory


def part_memory(bench):
    rows, kept, moments = [], [], {}
    for way in ("zero1_ahead", "all_reduce_overlapped"):
        if not bench.in_time(15, f"memory, {way}"):
            continue
        out = bench.folder / f"run-{way}.json"
        if not bench.run(f"train-{way}", ["train", "--gpus", "2", "--trainer", "mixed", "--model", bench.o.model, "-b", "4", "-t", "1024", "--steps", "3",
                                          "--quiet", "--variant", f"communication={way}", "--run-json", str(out)]):
            continue
        for rank, file in enumerate((out, out.with_name(f"{out.stem}.rank1.json"))):
            run = json.loads(file.read_text())
            items = {m["name"]: m["bytes"] for m in run["memory"]}
            planned, taken = sum(items.values()), run.get("memory_used_bytes")
            moments[way] = items["optimizer state"]
            error = (planned / taken - 1) * 100 if taken else None
            if error is None or abs(error) > 3:
                bench.fail(f"memory, {way}, rank {rank}: planned and taken differ by {error}%, asked are 3%")
            kept.append({"communication": way, "rank": rank, "planned_bytes": planned, "taken_bytes": taken, "items": items, "error_pct": error})
            rows.append([f"{way}, rank {rank}", planned >> 20, (taken or 0) >> 20, "-" if error is None else f"{error:+.2f}%",
                         items["optimizer state"] >> 20])
    if len(moments) == 2:
        halved = moments["zero1_ahead"] / moments["all_reduce_overlapped"]
        if abs(halved - 0.5) > 0.005:
            bench.fail(f"memory: the optimizer state of zero1_ahead is {halved:.3f} of all_reduce_overlapped's, expected a half")
    table(["MiB", "planned", "taken", "planned : taken", "moments"], rows)
    bench.keep("memory", kept)


# ---- counters


def part_counters(bench):
    rows, kept = [], []
    for communicator in ("peer", "nccl"):
        name = f"counters-{communicator}"
        if not bench.in_time(30, name):
            continue
        begin = time.monotonic()
        flags = [f for f in profile_flags(bench, 4, name) if f != "--no-counters"]
        good = bench.run(name, [*flags, "--gpus", "2", "--communicator", communicator])
        seconds = time.monotonic() - begin
        if not good:
            continue
        d = bench.document(name)
        of = [l for l in d["launches"] if l.get("activity") == "kernel"]
        counted = [l for l in of if l.get("dram_read_bytes") is not None]
        own = [l for l in of if l.get("pass") != "communication"]
        bare = sorted({l["name"][:60] for l in own if l.get("dram_read_bytes") is None})
        missing = [m["name"] for m in d["missing"]]
        if "ranks_not_counted" in missing or not counted:
            bench.fail(f"{name}: nothing was counted: {', '.join(missing)}")
        kept.append({"communicator": communicator, "seconds": seconds, "kernels": len(of), "counted": len(counted), "own_without_counters": bare,
                     "missing": missing})
        rows.append([communicator, len(of), len(counted), len(bare), f"{seconds:.0f}", ", ".join(missing)])
    table(["by", "kernels", "counted", "own names without", "s", "missing"], rows)
    bench.keep("counters", kept)


PARTS = {"alone": part_alone, "profile": part_profile, "model": part_model, "memory": part_memory, "counters": part_counters}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    p.add_argument("--out", required=True)
    p.add_argument("--limit-s", type=float, default=240)
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--model", default="d12")
    p.add_argument("--cases", default="mixed:4,mixed:16,mixed:64,fp32:4")
    p.add_argument("--batches", default="4,64", help="of the parts profile and model")
    p.add_argument("--profile-steps", type=int, default=40)
    p.add_argument("--turns", type=int, default=1, help="of the part profile")
    p.add_argument("--variant", action="append", default=[], metavar="SLOT=VARIANT", help="of the trainers of the parts profile and model")
    o = p.parse_intermixed_args()
    unknown = [part for part in o.parts if part not in PARTS]
    if unknown:
        p.error(f"{unknown[0]}: expected some of {', '.join(PARTS)}")
    for case in o.cases.split(","):
        if not re.fullmatch(r"[^:]+:\d+", case):
            p.error(f"--cases: '{case}': expected TRAINER:BATCH")
    for batch in o.batches.split(","):
        if not batch.isdecimal():
            p.error(f"--batches: '{batch}': expected a number")
    o.cases = [(trainer, int(batch)) for trainer, batch in (c.split(":") for c in o.cases.split(","))]
    o.batches = [int(b) for b in o.batches.split(",")]
    if o.turns < 1:
        p.error("--turns: expected at least 1")
    o.program = os.path.abspath(o.program)
    bench = Bench(o)
    for part in o.parts or [name for name in PARTS if name != "counters"]:
        begin = time.monotonic()
        print(f"== {part}", flush=True)
        try:
            PARTS[part](bench)
        except (OSError, KeyError, ValueError, TypeError) as e:
            bench.fail(f"{part}: {type(e).__name__}: {e}")
        print(f"{part}: {time.monotonic() - begin:.0f} s\n", flush=True)
    print(f"{len(bench.failed)} failed" + "".join(f"\n  {f}" for f in bench.failed))
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
