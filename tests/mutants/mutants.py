#!/usr/bin/env python3
"""One-line changes of host code, each of which a test must notice. See run_mutants.sh for how to call it.

A change costs one compilation and one link: the changed copy of a source file is compiled with the build's own command into a scratch
folder and linked before the build's libraries, so that the linker no longer looks for that file's symbols in them. A changed header costs a
compilation of each source of the program that includes it by name. Neither the tree nor the build folder is written to.

A change counts as caught when the tests fail, crash, or use far more CPU time than without it. Time limits are of CPU time: on a
loaded machine a wall clock would let survivors pass for caught.
"""
import argparse, concurrent.futures, datetime, json, os, platform, random, re, resource, shlex, signal, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CPU_LIMIT_S = 60         # at least; ten times what the unchanged tests take if that is more
WALL_LIMIT_S = 600       # for what hangs without using the CPU


class ListError(Exception):
    pass


def read_list(path):
    entries, names = [], set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) not in (5, 6):
            raise ListError(f"{path.name}:{number}: {len(cells)} columns, expected 5 or 6")
        name, file, old, new, target = cells[:5]
        run = cells[5] if len(cells) == 6 else target
        if name in names:
            raise ListError(f"{path.name}:{number}: {name} is there twice")
        if not old.strip() or old == new:
            raise ListError(f"{path.name}:{number}: {name}: nothing is changed")
        names.add(name)
        entries.append({"name": name, "file": file, "old": old, "new": new, "target": target, "run": run})
    return entries


def tokens(text):
    return re.findall(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+(?:\.\w+)*|\S', text)


def find_file(name):
    if (ROOT / name).is_file():
        return ROOT / name
    base = Path(name).name
    found = [p for top in ("base", "gpt2", "fp32", "mixed", "profiler", "experiments", "cli") for p in (ROOT / top).rglob(base)]
    if len(found) != 1:
        raise ListError(f"{name}: no such file, and {len(found)} files of the tree are called {base}")
    return found[0]


def change(entry):
    """The file and its changed text. Comments at line ends between two tokens do not match: choose shorter old text."""
    path = find_file(entry["file"])
    text = path.read_text()
    pattern = r"\s*".join(re.escape(t) for t in tokens(entry["old"]))
    if re.match(r"\w", entry["old"].strip()):
        pattern = r"(?<!\w)" + pattern
    found = [m.span() for m in re.finditer(pattern, text)]
    if len(found) != 1:
        raise ListError(f"{entry['name']}: `{entry['old']}` stands {len(found)} times in {path.relative_to(ROOT)}, expected once")
    begin, end = found[0]
    return path, text[:begin] + entry["new"] + text[end:]


class Build:
    """The commands of a ninja build folder."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        if not (self.folder / "build.ninja").is_file():
            raise ListError(f"{folder}: no ninja build folder")
        rules = json.loads(subprocess.run(["ninja", "-C", str(self.folder), "-t", "compdb"], capture_output=True, check=True).stdout)
        self.links = {r["output"]: r for r in rules if r["output"].startswith("bin/")}
        self.compiles = {}
        for r in rules:
            if r["output"].endswith(".o") and r["command"]:
                self.compiles.setdefault(str((self.folder / r["file"]).resolve()), []).append(r)
        self.closures = {}

    def make(self, targets):
        subprocess.run(["ninja", "-C", str(self.folder), *sorted(targets)], check=True)

    def objects_of(self, target):
        """Every object that goes into a program, through libraries too."""
        if target not in self.closures:
            text = subprocess.run(["ninja", "-C", str(self.folder), "-t", "inputs", target], capture_output=True, text=True, check=True)
            self.closures[target] = set(text.stdout.split("\n"))
        return self.closures[target]

    def link_segment(self, target):
        rule = self.links.get("bin/" + target)
        if rule is None:
            raise ListError(f"{target}: the build has no such program")
        for part in rule["command"].split(" && "):  # what comes after it lists the tests again, which is not wanted
            if f"-o bin/{target}" in part:
                return part
        raise ListError(f"{target}: its link command was not understood: {rule['command'][:200]}")

    def includers(self, header, target):
        """How the sources of `target` are compiled that include `header` by its name. Those that reach it through another header keep
        its old text: where both define an inline function, the linker takes the first, which is the changed one."""
        inputs = self.objects_of(target)
        line = f'#include "{header.relative_to(ROOT)}"'
        found = []
        for source, rules in self.compiles.items():
            rules = [r for r in rules if r["output"] in inputs]
            if not rules:
                continue
            text = Path(source).read_text()
            if "/Unity/" in source:
                text += "".join(Path(s).read_text() for s in re.findall(r'#include "(/[^"]+)"', text))
            if line in text:
                found += rules
        if not found:
            raise ListError(f"no source of {target} includes {header.relative_to(ROOT)}")
        return found

    def compile_rule(self, path, target):
        """How `path` is compiled for `target`: its rule, and the unity source that includes it or None."""
        inputs = self.objects_of(target)
        for r in self.compiles.get(str(path), []):
            if r["output"] in inputs:
                return r, None
        for source, rules in self.compiles.items():  # a unity source that includes it
            if "/Unity/" not in source:
                continue
            for r in rules:
                if r["output"] in inputs and str(path) in Path(source).read_text():
                    return r, Path(source).read_text()
        raise ListError(f"{path.relative_to(ROOT)} is no part of {target}")


def limited(argv, cwd, cpu_s, environment):
    def limits():
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(argv, cwd=cwd, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment, preexec_fn=limits)
        try:
            code = process.wait(WALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        out.seek(0)
        return code, out.read().decode(errors="replace")


def test_command(build, run, program, scratch):
    words = shlex.split(run)
    filter_ = words[1] if len(words) > 1 else "*"
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", GTEST_FAIL_FAST="1", CUDA_VISIBLE_DEVICES="", TMPDIR=str(scratch))
    test = build.folder / "bin" / words[0]
    if program.name == words[0]:
        test = program
    else:
        environment["STEPSCOPE_TEST_PROGRAM"] = str(program)
    return [str(test), "--gtest_filter=" + filter_], environment


def first_failure(output):
    failed = re.search(r"\[  FAILED  \] ([^\s,]+)", output)
    return failed.group(1) if failed else ""


def compilations(build, path, text, target, scratch):
    """The commands that compile a changed `path` for `target`, each with the build's rule that it stands for."""
    if path.suffix == ".h":  # it is looked for in the folders in their order, and they all name it from the root
        header = scratch / "include" / path.relative_to(ROOT)
        header.parent.mkdir(parents=True)
        header.write_text(text)
        for rule in build.includers(path, target):
            words = shlex.split(rule["command"])
            words.insert(next(i for i, w in enumerate(words) if w.startswith("-I")), f"-I{scratch / 'include'}")
            yield words, rule
        return
    rule, unity = build.compile_rule(path, target)
    source = scratch / path.name
    source.write_text(text)
    if unity is not None:
        changed = scratch / ("unity_" + path.stem + ".cxx")
        changed.write_text(unity.replace(str(path), str(source)))
        source = changed
    words = shlex.split(rule["command"])
    original = (build.folder / rule["file"]).resolve()
    words = [str(source) if (w.endswith(original.name) and (build.folder / w).resolve() == original) else w for w in words]
    if "-include" not in words:
        words.insert(words.index("-o"), f"-I{path.parent}")
    yield words, rule


def try_one(build, entry, baseline_s):
    began = time.monotonic()
    path, text = change(entry)
    with tempfile.TemporaryDirectory(prefix="stepscope-mutant-") as folder:
        scratch = Path(folder)
        objects = {}  # of the build -> changed
        for command, rule in compilations(build, path, text, entry["target"], scratch):
            objects[rule["output"]] = scratch / f"changed_{len(objects)}.o"
            command[command.index("-o") + 1] = str(objects[rule["output"]])
            if "-MF" in command:
                command[command.index("-MF") + 1] = str(scratch / "changed.d")
            compiled = subprocess.run(command + ["-g0", "-w", "-Wno-error"], cwd=build.folder, capture_output=True, text=True)
            if compiled.returncode != 0:
                return "does not compile", compiled.stderr.strip().split("\n")[0], time.monotonic() - began
        program = scratch / entry["target"]
        link = shlex.split(build.link_segment(entry["target"]))
        link[link.index("-o") + 1] = str(program)
        first = next(i for i, w in enumerate(link) if w.endswith(".o"))
        of_program = [o for o in objects if o in link]
        for original in of_program:
            link[link.index(original)] = str(objects[original])
        link[first:first] = [str(changed) for original, changed in objects.items() if original not in of_program]
        linked = subprocess.run(link + ["-Wl,-S"], cwd=build.folder, capture_output=True, text=True)
        if linked.returncode != 0:
            return "does not link", " | ".join(linked.stderr.strip().split("\n")[-3:-1]), time.monotonic() - began
        argv, environment = test_command(build, entry["run"], program, scratch)
        code, output = limited(argv, scratch, max(CPU_LIMIT_S, 10 * baseline_s), environment)
        seconds = time.monotonic() - began
        if code is None:
            return "caught", f"no end within {WALL_LIMIT_S} s", seconds
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "caught", "ten times the CPU time", seconds
        if code < 0:
            return "caught", f"signal {-code}", seconds
        if code == 0:
            return "SURVIVED", "", seconds
        return "caught", first_failure(output) or f"exit code {code}", seconds


def check_baseline(build, runs):
    """The unchanged tests must pass, and there must be some; else everything would count as caught. All that do not are named at once."""
    times, wrong = {}, []
    for run, target in sorted(runs):
        with tempfile.TemporaryDirectory(prefix="stepscope-mutant-") as folder:
            argv, environment = test_command(build, run, build.folder / "bin" / target, Path(folder))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            code, output = limited(argv, folder, 600, environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if code != 0 or not re.search(r"\[  PASSED  \] [1-9]", output):
            wrong.append(f"`{run}` without any change: {first_failure(output) or 'exit code ' + str(code)}\n{output[-800:]}")
        times[run] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if wrong:
        raise ListError("\n".join(wrong))
    return times


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def revision():
    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "-uno", "--", ".", ":(exclude)tests/mutants/score.tsv")  # which this run writes itself
    return git("rev-parse", "--short=10", "HEAD") + ("-dirty" if changed else "")


SCORE_COLUMNS = ["name", "file", "result", "by", "date", "revision", "machine"]


def read_score(path):
    if not path.exists():
        return {}
    lines = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#")]
    return {cells[0]: cells for cells in lines[1:] if len(cells) == len(SCORE_COLUMNS)}


def keep_score(path, rows, order):
    """Into the file: rows of this run replace older ones; a change that left the list leaves the score."""
    known = {name: cells for name, cells in read_score(path).items() if name in order and cells[2] in ("caught", "SURVIVED")}
    here = [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%MZ}", revision(), f"{processor()}, {os.cpu_count()} cores"]
    for entry, result, by in rows:
        known[entry["name"]] = [entry["name"], entry["file"], result, by, *here]
    listed = sorted(known.values(), key=lambda cells: order[cells[0]])
    caught = sum(cells[2] == "caught" for cells in listed)
    score = f"# {caught} of {len(order)} changes caught ({100 * caught / len(order):.1f}%), {len(order) - len(listed)} not run. Written by tests/mutants/run_mutants.sh."
    path.write_text("\n".join([score, "\t".join(SCORE_COLUMNS), *("\t".join(cells) for cells in listed)]) + "\n")


def run(arguments):
    entries = read_list(HERE / "mutants.tsv")
    if arguments.only:
        entries = [e for e in entries if any(re.search(pattern, e["name"]) for pattern in arguments.only)]
    if arguments.draw is not None:
        if not 1 <= arguments.draw <= len(entries):
            raise ListError(f"--draw {arguments.draw}: expected 1 to {len(entries)}")
        entries = random.Random(arguments.seed).sample(entries, arguments.draw)
    if arguments.rest:
        done = {name for name, cells in read_score(HERE / "score.tsv").items() if cells[2] == "caught"}
        entries = [e for e in entries if e["name"] not in done]
    if not entries:
        raise ListError("nothing to run: no change has such a name, or --rest leaves none")
    for entry in entries:
        change(entry)
    build = Build(arguments.build)
    if not arguments.built:
        build.make({e["target"] for e in entries} | {shlex.split(e["run"])[0] for e in entries})
    baseline = check_baseline(build, {(e["run"], e["target"]) for e in entries})
    print(f"{len(entries)} changes, {arguments.jobs} at a time; unchanged tests pass", flush=True)
    rows, began = [], time.monotonic()
    order = {e["name"]: i for i, e in enumerate(read_list(HERE / "mutants.tsv"))}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        waiting = {pool.submit(try_one, build, e, baseline[e["run"]]): e for e in entries}
        for future in concurrent.futures.as_completed(waiting):
            entry = waiting[future]
            try:
                result, by, seconds = future.result()
            except ListError as e:  # of one change; the others go on
                result, by, seconds = "does not fit", str(e), 0
            rows.append((entry, result, by))
            if arguments.score:  # at once: what is cut short goes on with --rest
                keep_score(Path(arguments.score), [rows[-1]], order)
            print(f"{len(rows):3}/{len(entries)} {result:9} {entry['name']:45} {by}  ({seconds:.0f} s)", flush=True)
    rows.sort(key=lambda r: order[r[0]["name"]])
    caught = sum(result == "caught" for _, result, _ in rows)
    score = f"{caught} of {len(rows)} changes caught ({100 * caught / len(rows):.1f}%)"
    for entry, result, by in rows:
        if result != "caught":
            print(f"{result}: {entry['name']} ({entry['file']}): `{entry['old']}` -> `{entry['new']}` {by}")
    print(f"{score}, {time.monotonic() - began:.0f} s")
    if any(result.startswith("does not") for _, result, _ in rows):
        return 2
    return 0 if caught >= 0.95 * len(rows) else 1


def test_programs():
    """What tests/*/CMakeLists.txt build, and the program itself, which its own tests run."""
    text = "\n".join(file.read_text() for file in (ROOT / "tests").glob("*/CMakeLists.txt"))
    return {"stepscope", *re.findall(r"\bNAME\s+(\w+)", text), *re.findall(r"add_executable\((\w+)", text)}


def check():
    entries = read_list(HERE / "mutants.tsv")
    programs = test_programs()
    wrong = [f"{e['name']}: no program is called {p}" for e in entries for p in sorted({e["target"], shlex.split(e["run"])[0]} - programs)]
    for entry in entries:
        try:
            change(entry)
        except ListError as e:
            wrong.append(str(e))
    if len(entries) < 60:
        wrong.append(f"{len(entries)} changes, expected at least 60")
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{len(entries)} changes, each matches once")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(prog="run_mutants.sh", description="Runs one-line changes of host code against the tests.")
    parser.add_argument("build", nargs="?", help="a configured ninja build folder")
    parser.add_argument("--check", action="store_true", help="only check that every change still applies; builds nothing")
    parser.add_argument("--only", action="append", metavar="REGEX", help="changes with such a name (repeatable)")
    parser.add_argument("--draw", type=int, metavar="N", help="N of them at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rest", action="store_true", help="only those that score.tsv does not show as caught; what they give goes into it")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--built", action="store_true", help="the programs are up to date: do not ask ninja")
    parser.add_argument("--score", metavar="FILE", help="put the results into this file (default, unless --only or --draw chose: tests/mutants/score.tsv)")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            return check()
        if not arguments.build:
            parser.error("a build folder is needed")
        if not arguments.score and (arguments.rest or (not arguments.only and arguments.draw is None)):
            arguments.score = str(HERE / "score.tsv")
        return run(arguments)
    except ListError as e:
        print(f"run_mutants.sh: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
