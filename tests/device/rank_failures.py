#!/usr/bin/env python3
"""Breaks runs of several ranks at random moments and looks at what is left.

  rank_failures.py PROGRAM [--rounds 100] [--gpus 2] [--seed 1] [--ways kill,stop,hang,launcher,interrupt] [--at-once N] [--limit-s S] [--out OUT.json]
                   -- FLAGS OF train
  rank_failures.py build/release/bin/stepscope --rounds 20 -- --trainer reference --model tiny -t 16 -b 2
  rank_failures.py build/release/bin/stepscope --rounds 100 --ways kill --at-once 3 --limit-s 200 -- --trainer mixed --model tiny -t 64 -b 2

--at-once campaigns share the rounds, each with a run of its own; on GPUs they share these too, so that steps take longer. Every round resumes
the run of its campaign's round before, trains until a random moment, breaks it in one way and waits for the end:
  kill       SIGKILL to a random rank
  stop       SIGSTOP to a random rank
  hang       the main thread of a random rank is held, while its other threads live; such a round saves nothing, as a save may take
             as long as it likes
  launcher   SIGKILL to the launcher
  interrupt  SIGINT to the launcher, as by ctrl-C
A round is good when all processes are gone, the exit code and the message fit the way, none of its processes has GPU memory, and no name was
left in /tmp or /dev/shm. The next round is good only if it resumes from a checkpoint that is no older than the last one that was saved
before. Where nvidia-smi does not know processes by the numbers that they have here (a container), memory is looked at as a whole once all rounds
are over; the summary says which. Exit 1 when a round was not good, when memory is left, or when --limit-s ended the campaigns before all rounds
were begun. Needs only Python's standard library.
"""
import argparse
import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

GIVE_UP_S = 60


def arguments():
    own, train = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, train = own[:at], own[at + 1:]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--rounds", type=int, default=100)
    p.add_argument("--gpus", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ways", default="kill,kill,kill,kill,stop,hang,launcher,interrupt")
    p.add_argument("--longest-s", type=float, default=1.5, help="a round is broken at most so long after its first step")
    p.add_argument("--at-once", type=int, default=1)
    p.add_argument("--limit-s", type=float, default=float("inf"), help="no round begins so long after the start")
    p.add_argument("--out")
    o = p.parse_args(own)
    o.train, o.ways = train, o.ways.split(",")
    unknown = [way for way in o.ways if way not in EXPECTED]
    if unknown:
        p.error(f"--ways: '{unknown[0]}': expected some of {', '.join(EXPECTED)}")
    return o


def alive(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def ranks_of(launcher):
    return [int(p) for p in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def nvidia_smi(what):
    """The lines of one query; None where there is no nvidia-smi or it has no answer."""
    try:
        out = subprocess.run(["nvidia-smi", what, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return out.stdout.split("\n") if out.returncode == 0 else None


def gpu_memory():
    """MiB in use on all visible GPUs."""
    lines = nvidia_smi("--query-gpu=memory.used")
    return None if lines is None else sum(int(x) for x in lines if x.strip().isdigit())


def gpu_processes():
    """Numbers of the processes that have GPU memory, as nvidia-smi knows them."""
    lines = nvidia_smi("--query-compute-apps=pid")
    return None if lines is None else {int(x) for x in lines if x.strip().isdigit()}


def waits_for(condition, seconds=5.0):
    """The driver frees memory a moment after the process is gone."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def names():
    """What could be left behind by name; other programs' files come and go, so only ours count."""
    return sorted(str(p) for d in ("/tmp", "/dev/shm") for p in Path(d).glob("*stepscope-rank*"))


def steps_saved(folder):
    return sorted(int(p.name[5:]) for p in folder.glob("step-*") if p.is_dir())


def hold_main_thread(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (0x4206, 0x4207):  # PTRACE_SEIZE, PTRACE_INTERRUPT
        if libc.ptrace(request, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"rank {pid} cannot be held by ptrace")

    def hear_of_its_end():  # who holds a process hears of its end first, and only then its parent does
        try:
            while True:
                os.waitpid(pid, os.WNOHANG | 0x40000000)  # __WALL
                time.sleep(0.01)
        except ChildProcessError:
            pass

    threading.Thread(target=hear_of_its_end, daemon=True).start()


EXPECTED = {"kill": (3, r"rank \d+ \(pid \d+\) was killed by signal 9 (in step \d+|before its first step)"),
            "stop": (3, r"rank \d+.* has not been heard for"),
            "hang": (3, r"rank \d+.* (does not come to the others|has not been heard for)|rank \d+ did not end by itself"),
            "launcher": (-9, r""),
            "interrupt": (130, r"interrupted (after step \d+|in step|before its first step)")}


def one_round(o, way, folder, rng):
    before = steps_saved(folder)
    command = [o.program, "train", "--gpus", str(o.gpus), "--steps", "1000000", "--checkpoints", str(folder), "--checkpoint-every", "1000000" if way == "hang" else "5",
               "--resume", "--json", "--silence-timeout", "2", "--stall-timeout", "2", *o.train]
    errors = tempfile.TemporaryFile("w+")
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    first = run.stdout.readline()
    result = {"way": way, "problems": []}
    bad = result["problems"].append
    ranks = ranks_of(run.pid) if first else []
    last = [first]

    def drain():
        for line in run.stdout:
            last[0] = line

    if way == "hang":  # the first steps may take sixty times the time
        for _ in range(10):
            last[0] = run.stdout.readline()
    reader = threading.Thread(target=drain)
    reader.start()
    seen = gpu_processes() if ranks else None
    result["known_to_nvidia_smi"] = None if seen is None else len(seen & set(ranks))
    time.sleep(rng.uniform(0, o.longest_s))
    begin = time.monotonic()
    if first:
        victim = rng.choice(ranks)
        if way == "kill":
            os.kill(victim, signal.SIGKILL)
        elif way == "stop":
            os.kill(victim, signal.SIGSTOP)
        elif way == "hang":
            hold_main_thread(victim)
        elif way == "launcher":
            run.send_signal(signal.SIGKILL)
        elif way == "interrupt":
            run.send_signal(signal.SIGINT)
    try:
        code = run.wait(GIVE_UP_S)
    except subprocess.TimeoutExpired:
        bad(f"not at its end after {GIVE_UP_S} s")
        run.kill()
        code = run.wait()
    deadline = time.monotonic() + 10
    while any(alive(p) for p in ranks) and time.monotonic() < deadline:
        time.sleep(0.01)
    result["seconds_to_end"] = round(time.monotonic() - begin, 3)
    reader.join()
    errors.seek(0)
    text = errors.read()
    result["message"] = text.strip().splitlines()[-1] if text.strip() else ""
    result["exit_code"] = code
    if not first:
        bad("it did not train: " + text.strip()[-400:])
        return result
    result["trained_to"] = json.loads(last[0])["step"] if last[0].startswith("{") and last[0].endswith("}\n") else None
    if any(alive(p) for p in ranks):
        bad("a rank is still there")
    if result["known_to_nvidia_smi"] and not waits_for(lambda: not set(ranks) & (gpu_processes() or set())):
        bad("a rank that is gone still has GPU memory")
    expected_code, message = EXPECTED[way]
    if code != expected_code:
        bad(f"exit code {code}, expected {expected_code}")
    if not re.search(message, text):
        bad(f"no message like '{message}': {text.strip()[-400:]}")
    first_step = json.loads(first)["step"]
    if before and first_step != before[-1] + 1:
        bad(f"it went on at step {first_step}, though step {before[-1]} was saved")
    if before and not steps_saved(folder):
        bad("no checkpoint is left")
    return result


class Campaigns:
    """All rounds, of whichever campaign comes for the next one."""

    def __init__(self, o):
        self.o, self.ways, self.here = o, o.ways, names()
        self.lock, self.begun, self.rounds = threading.Lock(), 0, []
        self.end = time.monotonic() + o.limit_s

    def next_round(self):
        with self.lock:
            if self.begun == self.o.rounds or time.monotonic() > self.end:
                return None
            self.begun += 1
            return self.begun

    def run(self, campaign):
        rng = random.Random(self.o.seed * 1000 + campaign)
        folder = Path(tempfile.mkdtemp()) / "run"
        while (number := self.next_round()) is not None:
            way = self.ways[(number - 1) % len(self.ways)]
            try:
                r = one_round(self.o, way, folder, rng)
            except Exception as e:  # a round that the script itself could not make is none that was good
                r = {"way": way, "problems": [f"{type(e).__name__}: {e}"], "seconds_to_end": 0.0, "message": ""}
            if names() != self.here:
                r["problems"].append(f"left behind: {sorted(set(names()) - set(self.here))}")
            r["campaign"] = campaign
            with self.lock:
                self.rounds.append(r)
                if r["problems"]:
                    print(f"round {number} ({way}): {'; '.join(r['problems'])}", flush=True)
        shutil.rmtree(folder.parent)


def main():
    o = arguments()
    idle, processes, begin = gpu_memory(), gpu_processes(), time.monotonic()
    campaigns = Campaigns(o)
    threads = [threading.Thread(target=campaigns.run, args=(c,)) for c in range(o.at_once)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rounds = campaigns.rounds
    summary = {"gpus": o.gpus, "train": o.train, "at_once": o.at_once, "seconds": round(time.monotonic() - begin, 1), "rounds": len(rounds),
               "not_begun": o.rounds - campaigns.begun, "not_good": sum(bool(r["problems"]) for r in rounds)}
    if idle is None:
        summary["gpu_memory"] = "no nvidia-smi"
    else:
        by_process = bool(rounds) and all(r.get("known_to_nvidia_smi") for r in rounds)
        freed = waits_for(lambda: (gpu_memory() or 0) <= idle and len(gpu_processes() or ()) <= len(processes or ()))
        summary["gpu_memory"] = ("by process, and " if by_process else "") + f"as a whole at the end: {'free' if freed else f'{gpu_memory() - idle} MiB are not free'}"
        summary["gpu_memory_free"] = freed
    summary["ways"] = {}
    for way in dict.fromkeys(campaigns.ways):
        own = [r for r in rounds if r["way"] == way]
        if own:
            times = sorted(r["seconds_to_end"] for r in own)
            summary["ways"][way] = {"rounds": len(own), "median_s": times[len(times) // 2], "longest_s": times[-1], "example": own[0]["message"]}
    print(json.dumps(summary, indent=1))
    if o.out:
        Path(o.out).write_text(json.dumps({"summary": summary, "rounds": rounds}, indent=1) + "\n")
    return 1 if summary["not_good"] or summary["not_begun"] or not summary.get("gpu_memory_free", True) else 0


if __name__ == "__main__":
    sys.exit(main())
