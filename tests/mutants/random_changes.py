#!/usr/bin/env python3
"""One-line changes of host code drawn at random, each run against the tests that reach it. See run_random_changes.sh for how to call it.

mutants.tsv holds changes that somebody thought of; a test is easily written for what one thinks of. Here a parser (libclang) finds every
condition, comparison, sum, literal and statement of the host sources in a copy of the tree and puts a switch at each. The copy is compiled
once. Every test runs once and leaves which switches it passed; then a change costs only the tests that reach it, not a build.
"""
import argparse, bisect, collections, concurrent.futures, json, multiprocessing, os, pickle, random, re, shlex, shutil, signal
import subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = ("base", "gpt2", "profiler", "experiments", "cli", "python")
SWITCHES = HERE / "switches.h"
MOST = 1 << 17          # kMost of switches.h
QUICK_S = 8             # tests that take longer are not run for a change
PER_CHANGE_S = 25       # and no more than this in all

COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
# Tests of the sources' own text, which the copy no longer has.
ABOUT_SOURCES = re.compile(r"mutants|build\.|check_format|Receipt|receipt|Bugs\.|bugs\.|Names|CommandLines|python\.")


class Problem(Exception):
    pass


def clang():
    try:
        import clang.cindex as cindex
    except ImportError:
        raise Problem("this interpreter cannot import clang.cindex; on Debian: apt install python3-clang-16, then run with /usr/bin/python3")
    if not cindex.Config.loaded and cindex.Config.library_file is None:
        found = sorted(Path("/usr/lib").glob("llvm-*/lib/libclang.so.1"))
        if found:
            cindex.Config.set_library_file(str(found[-1]))
    return cindex


class Site:
    """A change: text before and behind a span of the source, and perhaps a comma in place of an operator."""

    def __init__(self, kind, cursor, before, behind, depth, operator=None):
        self.kind, self.before, self.behind, self.depth, self.operator = kind, before, behind, depth, operator
        self.begin, self.end = cursor.extent.start.offset, cursor.extent.end.offset
        self.line, self.last_line = cursor.extent.start.line, cursor.extent.end.line


class Finder:
    """The sites of one source file. Only what stands in it as written: nothing inside a macro, a constant expression or a header."""

    def __init__(self, cindex, path, text):
        self.K, self.T, self.path, self.text = cindex.CursorKind, cindex.TypeKind, path, text
        self.macros = [m.span() for m in re.finditer(rb"\b[A-Z][A-Z_0-9]{2,}\s*\([^()]*\)", text)]
        T = self.T
        self.numbers = {T.BOOL, T.CHAR_S, T.CHAR_U, T.SCHAR, T.UCHAR, T.SHORT, T.USHORT, T.INT, T.UINT, T.LONG, T.ULONG, T.LONGLONG,
                        T.ULONGLONG, T.FLOAT, T.DOUBLE}
        self.sites, self.omp = {}, [m.start() for m in re.finditer(rb"#pragma omp", text)]

    def all(self, unit):
        self.declarations(unit.cursor)
        return list(self.sites.values())

    def source(self, cursor):
        return self.text[cursor.extent.start.offset:cursor.extent.end.offset].decode(errors="replace")

    def put(self, kind, cursor, before, behind, depth, operator=None):
        site = Site(kind, cursor, before, behind, depth, operator)
        places = [site.begin, site.end - 1] + ([operator[0]] if operator else [])
        if not any(b <= p < e for p in places for b, e in self.macros):
            self.sites.setdefault((kind, site.begin, site.end), site)  # an implicit conversion has the span of its operand

    def negatable(self, kind, cursor, depth):
        self.put(kind, cursor, "(switches::on(@) != static_cast<bool>(", "))", depth)

    def declarations(self, cursor):
        K = self.K
        functions = (K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.FUNCTION_TEMPLATE, K.CONVERSION_FUNCTION)
        scopes = (K.NAMESPACE, K.CLASS_DECL, K.STRUCT_DECL, K.CLASS_TEMPLATE, K.LINKAGE_SPEC, K.UNEXPOSED_DECL)
        for c in cursor.get_children():
            if not c.location.file or c.location.file.name != self.path:
                continue
            if c.kind in scopes:
                self.declarations(c)
            elif c.kind in functions and c.is_definition() and not re.search(r"\bconst(expr|eval)\b", self.source(c).split("{")[0]):
                returns_bool = c.result_type.get_canonical().kind == self.T.BOOL
                for part in c.get_children():
                    if part.kind == K.COMPOUND_STMT:
                        self.walk(part, 0, returns_bool)

    def in_omp_loop_head(self, cursor):
        """OpenMP wants the head of its loop as it is."""
        i = bisect.bisect(self.omp, cursor.extent.start.offset) - 1
        return i >= 0 and self.text.count(b"\n", self.omp[i], cursor.extent.start.offset) <= 2

    def walk(self, c, depth, returns_bool):
        K, kind = self.K, c.kind
        if kind in (K.STATIC_ASSERT, K.PARM_DECL, K.ENUM_DECL, K.TYPE_ALIAS_DECL, K.TYPEDEF_DECL):
            return
        if kind == K.VAR_DECL and "constexpr" in self.source(c).split("=")[0]:
            return
        parts = list(c.get_children())
        if kind == K.FOR_STMT and self.in_omp_loop_head(c):
            parts = parts[-1:]
        elif kind == K.IF_STMT:
            parts = self.if_(c, parts, depth)
        elif kind == K.CONDITIONAL_OPERATOR and len(parts) == 3:
            self.negatable("negated ?:", parts[0], depth + 1)
        elif kind == K.BINARY_OPERATOR and len(parts) == 2:
            self.binary(c, *parts, depth)
        elif kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL, K.CXX_BOOL_LITERAL_EXPR):
            if kind == K.CXX_BOOL_LITERAL_EXPR or self.source(c)[:1].isdigit():
                self.put("literal", c, "switches::literal(@, ", ")", depth)
        elif kind == K.RETURN_STMT and returns_bool and parts and parts[0].kind != K.CXX_BOOL_LITERAL_EXPR:
            self.negatable("negated return", parts[0], depth + 1)
        elif kind == K.CASE_STMT:
            parts = parts[1:]
        elif kind == K.COMPOUND_STMT:
            for s in parts:
                ends = self.text[s.extent.end.offset:s.extent.end.offset + 1] == b";"
                if ends and (s.kind.is_expression() or s.kind in (K.CONTINUE_STMT, K.BREAK_STMT)) and s.kind != K.CXX_THROW_EXPR:
                    self.put("no statement", s, "if (!switches::on(@)) ", "", depth + 1)
        for part in parts:
            self.walk(part, depth + 2, returns_bool and kind != K.LAMBDA_EXPR)

    def if_(self, c, parts, depth):
        text = self.source(c)
        if re.match(r"if\s+constexpr", text):
            return parts[1:]
        head, condition = re.match(r"if\s*\(", text), parts[0]
        if head and condition.kind.is_expression():
            begin, end = c.extent.start.offset + head.end(), condition.extent.end.offset
            if not self.text[begin:condition.extent.start.offset].strip() and self.text[end:end + 1] == b")":
                self.negatable("negated if", condition, depth + 1)
        return parts

    def binary(self, c, left, right, depth):
        begin, end = left.extent.end.offset, right.extent.start.offset
        operator = self.text[begin:end].decode(errors="replace").strip()
        numeric = all(x.type.get_canonical().kind in self.numbers for x in (left, right))
        name = COMPARE.get(operator) or ARITHMETIC.get(operator)
        if name and numeric:
            at = begin + self.text[begin:end].index(operator.encode())
            kind = "compared otherwise" if operator in COMPARE else "other arithmetic"
            self.put(kind, c, f"switches::{name}(@, ", ")", depth, (at, len(operator)))
        elif operator in ("&&", "||"):
            taken = "switches::on(@) || " if operator == "&&" else "!switches::on(@) && "
            for side, operand in (("left", left), ("right", right)):
                self.put(f"without its {side}", operand, f"({taken}static_cast<bool>(", "))", depth + 1)


def changed_text(text, sites, first_id):
    events = []
    for i, s in enumerate(sites):
        events.append((s.begin, 1, s.depth, 0, s.before.replace("@", str(first_id + i))))
        if s.behind:
            events.append((s.end, 0, -s.depth, 0, s.behind))
        if s.operator:
            events.append((s.operator[0], 2, 0, s.operator[1], ","))
    out, at = [f'#include "{SWITCHES}"\n#line 1\n'.encode()], 0
    for offset, _, _, replaced, insertion in sorted(events, key=lambda e: e[:3]):
        out += [text[at:offset], insertion.encode()]
        at = offset + replaced
    return b"".join(out) + text[at:]


def parser_flags(command):
    words, kept, i = shlex.split(command)[1:], ["-Wno-everything"], 0
    while i < len(words):
        if words[i] in ("-I", "-isystem", "-D"):
            kept += words[i:i + 2]
            i += 1
        elif words[i].startswith(("-I", "-D", "-std", "-isystem")):
            kept.append(words[i])
        i += 1
    return kept


def find_sites(job):
    """(path, sites or None, why none). A site with which the file no longer parses is left out, by the lines of the errors."""
    path, command = job
    try:
        cindex = clang()
        known = cindex.CursorKind.from_id.__func__

        def kind_of(cls, number):  # the library may be newer than its bindings
            try:
                return known(cls, number)
            except ValueError:
                return cindex.CursorKind.UNEXPOSED_DECL
        cindex.CursorKind.from_id = classmethod(kind_of)
        text, flags, index = Path(path).read_bytes(), parser_flags(command), cindex.Index.create()
        unit = index.parse(path, flags)
        errors = [d for d in unit.diagnostics if d.severity >= 3]
        if errors:
            return path, None, str(errors[0])
        sites = Finder(cindex, path, text).all(unit)
        for attempt in range(12):
            unit = index.parse(path, flags, unsaved_files=[(path, changed_text(text, sites, 1).decode())])
            errors = [d for d in unit.diagnostics if d.severity >= 3]
            if not errors:
                return path, sites, ""
            places = [p for d in errors for p in [d, *d.children] if p.location.file and p.location.file.name == path]
            lines = {p.location.line for p in places}
            around = 0 if attempt < 6 else 2
            kept = [s for s in sites if not any(s.line - around <= line <= (s.last_line if attempt > 2 else s.line) + around for line in lines)]
            if not lines:
                break
            sites = kept
        return path, None, str(errors[0])
    except Problem:
        raise
    except Exception as e:  # one file less
        return path, None, repr(e)


class Copy:
    """A copy of the tree's committed files with switches in its host sources, its build and what the tests of it reach."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        # Where it lies in any other tree, and with the same flags, so that ccache has what no switch stands in.
        self.tree = self.folder / "tree"
        self.build = self.tree / "build" / "host"

    def make(self, only, jobs):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.tree.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", "HEAD"], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(self.tree)], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            raise Problem("git archive failed")
        commands = self.compile_commands()
        if only:
            commands = {p: c for p, c in commands.items() if any(str(Path(p).relative_to(self.tree)).startswith(o) for o in only)}
        rows, left_out, first = [], [], 1
        with multiprocessing.Pool(jobs) as pool:
            results = sorted(pool.imap_unordered(find_sites, commands.items()), key=lambda r: r[0])
        for path, sites, why in results:
            name = str(Path(path).relative_to(self.tree))
            if sites is None:
                left_out.append(f"{name}: {why}")
                continue
            if first + len(sites) >= MOST:
                left_out.append(f"{name}: more than {MOST} switches")
                continue
            text = Path(path).read_bytes()
            Path(path).write_bytes(changed_text(text, sites, first))
            for i, s in enumerate(sites):
                words = re.sub(r"\s+", " ", text[s.begin:s.end].decode(errors="replace"))
                rows.append([str(first + i), name, str(s.line), s.kind, words[:120]])
            first += len(sites)
        (self.folder / "sites.tsv").write_text("".join("\t".join(r) + "\n" for r in rows))
        print(f"{len(rows)} switches in {len(results) - len(left_out)} files", flush=True)
        for line in left_out:
            print("left out:", line)
        subprocess.run(["cmake", "--preset", "host", "-DSTEPSCOPE_UNITY=ON"], cwd=self.tree, check=True, stdout=subprocess.DEVNULL)
        log = self.folder / "build.log"  # mostly warnings about switches
        with open(log, "w") as file:
            ninja = subprocess.run(["ninja", "-C", str(self.build), "-j", str(jobs)], stdout=file,
                                   env=dict(os.environ, CCACHE_BASEDIR=str(self.tree)))
        if ninja.returncode != 0:
            raise Problem(f"the copy does not compile: {log}")

    def compile_commands(self):
        """Of each host source as if it were compiled alone: a unity build lists only the files that include them."""
        plain = self.folder / "commands"
        subprocess.run(["cmake", "--preset", "host", "-B", str(plain)], cwd=self.tree, check=True, stdout=subprocess.DEVNULL)
        all_ = json.loads((plain / "compile_commands.json").read_text())
        generated = subprocess.run(["ninja", "-C", str(plain), "-t", "targets", "all"], capture_output=True, text=True).stdout
        included = re.findall(r"^(\S+\.(?:pb\.h|inc)): CUSTOM_COMMAND", generated, re.M)
        if included:
            subprocess.run(["ninja", "-C", str(plain), *included], check=True, stdout=subprocess.DEVNULL)
        return {r["file"]: r["command"] for r in all_ if r["file"].endswith(".cpp")
                and Path(r["file"]).is_relative_to(self.tree) and Path(r["file"]).relative_to(self.tree).parts[0] in FOLDERS}

    def tests(self):
        listed = subprocess.run(["ctest", "--test-dir", str(self.build), "--show-only=json-v1"], capture_output=True, text=True, check=True)
        for t in json.loads(listed.stdout)["tests"]:
            if t.get("command") and Path(t["command"][0]).exists() and not ABOUT_SOURCES.search(t["name"]):
                properties = {p["name"]: p["value"] for p in t.get("properties", [])}
                environment = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
                yield {"name": t["name"], "command": t["command"], "cwd": properties.get("WORKING_DIRECTORY"), "environment": environment}

    def measure(self, jobs):
        """Runs every test once: how long it takes and which switches it passes. A test that fails is left out."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            tests = list(pool.map(self.measure_one, self.tests()))
        for t in tests:
            if t["code"] not in (0, 77):
                print(f"left out, fails without a change: {t['name']}")
        tests = [t for t in tests if t["code"] == 0]
        (self.folder / "tests.pickle").write_bytes(pickle.dumps(tests))
        print(f"{len(tests)} tests pass {len(set().union(*(t['reached'] for t in tests)))} switches", flush=True)

    def measure_one(self, test):
        with tempfile.NamedTemporaryFile(prefix="stepscope-reached-") as file:
            file.truncate(MOST)
            code, _, seconds = run(test["command"], test["cwd"], dict(test["environment"], STEPSCOPE_CHANGES_REACHED=file.name), 600)
            marks = Path(file.name).read_bytes()
        return dict(test, code=code, seconds=seconds, reached={i for i, mark in enumerate(marks) if mark})


def run(command, cwd, environment, limit_s):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stepscope-change-") as folder, tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                   env=dict(os.environ, OMP_WAIT_POLICY="passive", CUDA_VISIBLE_DEVICES="", TMPDIR=folder, **environment))
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        out.seek(0)
        return code, out.read().decode(errors="replace"), time.monotonic() - began


def try_change(site, tests):
    """("caught" or "SURVIVED" or "survived the quick tests", by which test). Quickest programs first, the cases of one in one process."""
    programs, spent, complete = collections.defaultdict(list), 0.0, True
    for t in tests:
        if t["seconds"] > QUICK_S:
            complete = False
            continue
        filtered = len(t["command"]) > 1 and t["command"][1].startswith("--gtest_filter=")
        programs[(t["command"][0], "") if filtered else (t["command"][0], t["name"])].append(t)
    for (program, name), cases in sorted(programs.items(), key=lambda p: sum(t["seconds"] for t in p[1])):
        chosen, seconds = [], 0.0
        for t in sorted(cases, key=lambda t: t["seconds"]):
            if chosen and (seconds + t["seconds"] > PER_CHANGE_S / 2 or name):
                complete = False
                break
            chosen.append(t)
            seconds += t["seconds"]
        if spent + seconds > PER_CHANGE_S:
            complete = False
            continue
        command = chosen[0]["command"] if name else [program, "--gtest_filter=" + ":".join(t["command"][1].split("=", 1)[1] for t in chosen)]
        environment = dict(chosen[0]["environment"], STEPSCOPE_CHANGE=site[0], GTEST_FAIL_FAST="1")
        code, output, took = run(command, chosen[0]["cwd"], environment, max(20, 10 * seconds))
        spent += took
        if code != 0:
            failed = re.search(r"\[  FAILED  \] ([^\s,]+)", output)
            return "caught", failed.group(1) if failed else f"{Path(program).name}: {'no end' if code is None else f'exit code {code}'}"
    return ("SURVIVED" if complete else "survived the quick tests"), f"{len(tests)} tests reach it"


def main():
    parser = argparse.ArgumentParser(prog="run_random_changes.sh", description="Random one-line changes of host code against the tests.")
    parser.add_argument("folder", help="for the copy of the tree, its build and results.tsv; made anew with --make")
    parser.add_argument("--make", action="store_true", help="copy HEAD, put the switches in, build, and run every test once")
    parser.add_argument("--only", action="append", metavar="PATH", help="files whose path begins so (repeatable)")
    parser.add_argument("--draw", type=int, default=200, metavar="N", help="changes to run (200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    copy = Copy(arguments.folder)
    try:
        if arguments.make:
            clang()
            copy.make(arguments.only, arguments.jobs)
            copy.measure(arguments.jobs)
        if not (copy.folder / "tests.pickle").is_file():
            raise Problem(f"{arguments.folder}: no copy of the tree was finished there; call it with --make first")
        return draw(copy, arguments)
    except (Problem, subprocess.CalledProcessError) as e:
        print(f"run_random_changes.sh: {e}", file=sys.stderr)
        return 2


def draw(copy, arguments):
    tests = pickle.loads((copy.folder / "tests.pickle").read_bytes())
    sites = [line.split("\t") for line in (copy.folder / "sites.tsv").read_text().splitlines()]
    if arguments.only:
        sites = [s for s in sites if any(s[1].startswith(o) for o in arguments.only)]
    reached_by = collections.defaultdict(list)
    for t in tests:
        for i in t["reached"]:
            reached_by[i].append(t)
    unreached = sum(int(s[0]) not in reached_by for s in sites)
    drawn = random.Random(arguments.seed).sample(sites, min(arguments.draw, len(sites)))
    counts, folders = collections.Counter(), collections.defaultdict(collections.Counter)
    with open(copy.folder / "results.tsv", "a") as file, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        def one(site):
            reaching = reached_by.get(int(site[0]), [])
            return site, *(try_change(site, reaching) if reaching else ("not reached", "no test"))
        for site, result, by in pool.map(one, drawn):
            counts[result] += 1
            folders[site[1].split("/")[0]][result] += 1
            file.write("\t".join([*site, result, by]) + "\n")
            file.flush()
            if result != "caught":
                print(f"{result}: {site[1]}:{site[2]}: {site[3]}: `{site[4]}` ({by})", flush=True)
    for folder, of_it in sorted(folders.items()):
        print(f"{folder}: {of_it['caught']} of {sum(of_it.values())} caught")
    print(f"{counts['caught']} of {len(drawn)} caught ({100 * counts['caught'] / max(1, len(drawn)):.1f}%), seed {arguments.seed}; "
          f"no test reaches {unreached} of {len(sites)} places")
    return 0


if __name__ == "__main__":
    sys.exit(main())
