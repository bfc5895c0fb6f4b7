#!/usr/bin/env python3
"""Step time and joules of programs that train, each alone on the GPU, fresh processes one after the other.

  alone_in_turns.py --seconds 15 'theirs=./train_gpt2cu …' 'ours=stepscope train … --steps 1000000' [--order theirs,ours,ours,theirs]

A step is a line on stdout that begins with `step` and a number, as stepscope's `train` and llm.c print it; its end is when the line arrives.
A process is ended so many seconds after its first step, and the second half of them counts: mean ms a step by the clock, joules a step by the
GPU's energy counter between its first and last move in that half (the first of CUDA_VISIBLE_DEVICES, else GPU 0; by NVML's numbers, which are
CUDA's where the GPUs are alike), the SM clock in the middle of the half. Without --order: there and back. Then the ratio of means of every
program to the first. Exit 1 when a process ends by itself, or where its half has fewer than 20 steps or two moves of the counter, 2 for wrong
arguments, 3 where NVML is missing or does not answer.
Needs only Python's standard library and NVML; used on the GPU machine, never to build or run stepscope.
"""
import argparse
import ctypes
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

STEP = re.compile(rb"^step +\d+")


class MachineError(Exception):
    """This machine cannot measure; the sentence says why."""


class Meter:
    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as e:
            raise MachineError(f"NVML cannot be loaded: {e}") from None
        self.device = ctypes.c_void_p()
        self.check(self.nvml.nvmlInit_v2(), "nvmlInit")
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
        if gpu.startswith("GPU-"):
            self.check(self.nvml.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(self.device)), f"nvmlDeviceGetHandleByUUID({gpu})")
        elif gpu.isdigit():
            self.check(self.nvml.nvmlDeviceGetHandleByIndex_v2(int(gpu), ctypes.byref(self.device)), f"nvmlDeviceGetHandleByIndex({gpu})")
        else:
            raise MachineError(f"CUDA_VISIBLE_DEVICES begins with '{gpu}': expected a number or GPU-UUID")
        # The counter of an H200 moves every 100 ms: read at any two moments 4 s apart it is off by up to 2.5%.
        self.moves = [(time.monotonic(), self.joules())]
        self.failure = None
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        try:
            while True:
                joules = self.joules()
                if joules != self.moves[-1][1]:
                    self.moves.append((time.monotonic(), joules))
                time.sleep(0.002)
        except MachineError as e:
            self.failure = e

    def watts(self, begin, end):
        """Between the first and the last move of the counter from begin to end; None where it moved less than twice."""
        if self.failure:
            raise self.failure
        inside = [m for m in self.moves if begin <= m[0] <= end]
        if len(inside) < 2:
            return None
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    @staticmethod
    def check(code, call):
        if code != 0:
            raise MachineError(f"{call} failed with {code}")

    def joules(self):
        value = ctypes.c_ulonglong()
        self.check(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value)), "nvmlDeviceGetTotalEnergyConsumption")
        return value.value * 1e-3

    def sm_clock_mhz(self):
        value = ctypes.c_uint()
        self.check(self.nvml.nvmlDeviceGetClockInfo(self.device, 1, ctypes.byref(value)), "nvmlDeviceGetClockInfo")
        return value.value


def run(command, seconds, meter):
    """(ms a step, joules a step, SM clock) of the second half, or None and the process's last words."""
    # A pipe would fill whole buffers before a line arrives.
    process = subprocess.Popen(["stdbuf", "-oL"] + shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    first = half = last = clock = None
    steps, words = 0, []
    for line in process.stdout:
        now = time.monotonic()
        if not STEP.match(line):
            words = (words + [line.decode(errors="replace").rstrip()])[-5:]
            continue
        first = first or now
        if half is None:
            if now >= first + seconds / 2:
                half = now
            continue
        steps += 1
        if clock is None and now >= first + 0.75 * seconds:
            clock = meter.sm_clock_mhz()
        if now >= first + seconds:
            last = now
            break
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    process.wait()
    if last is None or steps < 20:
        return None, f"{steps} steps counted, exit {process.returncode}: " + " | ".join(words)
    watts = meter.watts(half, last)
    if watts is None:
        return None, "the energy counter moved less than twice"
    step = (last - half) / steps
    return (step * 1e3, watts * step, clock), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--order", help="names, with commas between")
    args = parser.parse_args()
    for program in args.programs:
        if "=" not in program:
            parser.error(f"'{program}': expected NAME=COMMAND")
    commands = dict(p.split("=", 1) for p in args.programs)
    order = args.order.split(",") if args.order else list(commands) + list(reversed(commands))
    unknown = [name for name in order if name not in commands]
    if unknown:
        parser.error(f"--order names {unknown[0]}: expected some of {', '.join(commands)}")
    meter = Meter()
    seen = {name: [] for name in commands}
    failed = False
    for name in order:
        found, why = run(commands[name], args.seconds, meter)
        if found is None:
            failed = True
            print(f"{name:<16} {why}", flush=True)
            continue
        seen[name].append(found)
        print(f"{name:<16} {found[0]:9.3f} ms {found[1]:8.3f} J  {found[2]} MHz", flush=True)
    base = seen[next(iter(commands))]
    for name, runs in seen.items():
        if runs and base:
            ratio = [statistics.mean(r[i] for r in runs) / statistics.mean(r[i] for r in base) for i in (0, 1)]
            print(f"{name:<16} {ratio[0]:.4f} of the time, {ratio[1]:.4f} of the joules, {len(runs)} processes", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MachineError as e:
        print(f"alone_in_turns.py: {e}", file=sys.stderr)
        sys.exit(3)
