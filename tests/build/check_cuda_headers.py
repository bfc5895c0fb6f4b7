#!/usr/bin/env python3
"""Compiles the sources that include CUDA's headers against the headers of another toolkit, and links nothing.

    cmake -B build/cuda -G Ninja -DSTEPSCOPE_PCH=OFF -DSTEPSCOPE_UNITY=ON -DSTEPSCOPE_UNITY_BATCH=0 -DSTEPSCOPE_COMPILE_ONLY=ON
        configures with the toolkit of this machine; nothing needs to be built. Without the last three: each source by itself
    tests/build/check_cuda_headers.py build/cuda HEADERS [--compiler clang++-16] [--all] [--device] [--ptxas FILE] [--only REGEX] [-j N]

HEADERS is a folder with cuda_runtime.h, cublasLt.h, cupti.h, nvml.h, nvtx3/ and cuda/ (libcu++) of one CUDA version.
Host sources: -fsyntax-only with the build's own flags, all warnings as errors. With --device instead: the build's nvcc makes PTX out
of every .cu file with these headers, and --ptxas (of the other toolkit) turns that PTX into machine code.
A source that still took a CUDA header from anywhere else fails, because it would have been checked against the wrong one.
Exit 0: all compile. 1: some do not. 2: wrong arguments.
"""
import argparse, concurrent.futures, json, os, re, shlex, subprocess, sys, tempfile
from pathlib import Path

# What tells that a folder of headers belongs to a CUDA toolkit.
MARKS = ("cuda_runtime.h", "cupti.h", "cublasLt.h")


def is_toolkit(folder):
    return any((Path(folder) / mark).is_file() for mark in MARKS)


def without_toolkit(words):
    """The words of a compile command less the include folders of a CUDA toolkit, and whether there were any."""
    kept, found, i = [], False, 0
    while i < len(words):
        word, value, used = words[i], None, 1
        if word in ("-isystem", "-I"):
            value, used = words[i + 1], 2
        elif word.startswith("-isystem="):
            value = word[len("-isystem="):]
        elif word.startswith("-I"):
            value = word[2:]
        if value and is_toolkit(value):
            found = True
        else:
            kept += words[i:i + used]
        i += used
    return kept, found


def drop(words, *with_value):
    kept, i = [], 0
    while i < len(words):
        if words[i] in with_value:
            i += 2
            continue
        kept.append(words[i])
        i += 1
    return kept


def foreign_headers(deps, headers):
    """CUDA headers that did not come from `headers`. NCCL and cuDNN have versions of their own and may lie beside another toolkit."""
    words = deps.read_text().replace("\\\n", " ").split()[1:] if deps.exists() else []
    if not words:
        return ["no list of headers: the compiler wrote none"]
    wrong = []
    for word in words:
        path = Path(os.path.realpath(word))
        other = next((parent for parent in path.parents if is_toolkit(parent)), None)
        if other and other != headers:
            if (headers / path.relative_to(other)).is_file() or re.match(r"cuda|cublas|cupti|nvml|nvToolsExt", path.name):
                wrong.append(f"{word} does not lie in {headers}")
    return wrong


def check_host(entry, o, headers):
    words, _ = without_toolkit(shlex.split(entry["command"]))
    while not re.search(r"(\+\+|cc|clang)[^/]*$", words[0]) or "ccache" in words[0]:
        words = words[1:]  # ccache and the environment in front of it
    words[0] = o.compiler or words[0]
    words = drop(words, "-o")
    if "clang" in Path(words[0]).name:
        words = [w for w in words if not w.startswith("--param") and w != "-fpch-preprocess"] + ["-Qunused-arguments", "-Wno-unknown-warning-option"]
    if entry["file"].endswith(".cxx"):
        words.append("-Wno-shadow")  # of another source's names
    with tempfile.TemporaryDirectory() as scratch:
        deps = Path(scratch) / "deps"
        words += ["-fsyntax-only", "-Werror", "-isystem", str(headers), "-MD", "-MF", str(deps), "-MT", "x"]
        done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
        return done.returncode, done.stderr, done.returncode == 0 and foreign_headers(deps, headers) or []


def check_device(entry, o, headers):
    words, _ = without_toolkit(shlex.split(entry["command"]))
    while not Path(words[0]).name.startswith("nvcc"):
        words = words[1:]
    words = drop(words, "-o")
    codes = [w for w in words if w.startswith("--generate-code=")]
    arch = sorted(re.findall(r"compute_(\w+)", " ".join(codes)) or ["90"], key=lambda a: int(re.match(r"\d+", a)[0]))[-1]
    words = [w for w in words if not w.startswith("--generate-code=") and w not in ("-c", "-dc") and not w.startswith("-arch")]
    with tempfile.TemporaryDirectory() as scratch:
        ptx, deps = Path(scratch) / "x.ptx", Path(scratch) / "deps"
        # -I stands before nvcc's own folder, -isystem behind it.
        words += [f"-I{headers}", f"-arch=compute_{arch}", "--ptx", "-MD", "-MF", str(deps), "-o", str(ptx)]
        done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
        code, text = done.returncode, done.stderr
        if code == 0 and o.ptxas:
            # The newer compiler writes the newest PTX version; what it uses of it the older ptxas decides.
            body = re.sub(r"^\.version \S+", f".version {o.ptx_version}", ptx.read_text(), flags=re.M)
            ptx.write_text(body)
            done = subprocess.run([o.ptxas, f"-arch=sm_{arch}", str(ptx), "-o", str(Path(scratch) / "x.cubin")], capture_output=True, text=True)
            code, text = done.returncode, text + done.stderr
        return code, text, code == 0 and foreign_headers(deps, headers) or []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=Path, help="a folder that was configured with STEPSCOPE_CUDA=ON and STEPSCOPE_PCH=OFF")
    parser.add_argument("headers", type=Path, help="a folder of CUDA headers")
    parser.add_argument("--compiler", help="for host sources (default: that of the build)")
    parser.add_argument("--all", action="store_true", help="host sources that include none of CUDA's headers too")
    parser.add_argument("--device", action="store_true", help="check the .cu files instead of the .cpp files")
    parser.add_argument("--ptxas", help="with --device: turns the PTX into machine code")
    parser.add_argument("--ptx-version", default="8.7", help="what --ptxas reads (default: 8.7, that of CUDA 12.8)")
    parser.add_argument("--only", default="", metavar="REGEX", help="sources whose path matches")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    o = parser.parse_args()
    headers = Path(os.path.realpath(o.headers))
    commands = o.build / "compile_commands.json"
    if not commands.is_file():
        parser.error(f"{commands} is missing: configure that folder first")
    if not is_toolkit(headers):
        parser.error(f"{headers} holds none of {', '.join(MARKS)}")
    suffix = ".cu" if o.device else (".cpp", ".cxx")  # .cxx: several sources that CMake compiles as one
    entries = {}
    for entry in json.loads(commands.read_text()):
        if entry["file"].endswith(suffix) and re.search(o.only, entry["file"]):
            if o.device or o.all or without_toolkit(shlex.split(entry["command"]))[1]:
                entries.setdefault(entry["file"], entry)
    if not entries:
        parser.error("nothing there that matches is compiled with CUDA's headers")
    root, bad, seen = Path(__file__).resolve().parent.parent.parent, 0, 0
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        waiting = {pool.submit(check_device if o.device else check_host, e, o, headers): e["file"] for e in entries.values()}
        for future in concurrent.futures.as_completed(waiting):
            code, text, foreign = future.result()
            seen += 1
            name = os.path.relpath(waiting[future], root)
            text += "".join(f"{name}: {header}\n" for header in foreign)
            wrong = code != 0 or bool(foreign)
            bad += wrong
            print(f"[{seen}/{len(entries)}] {'FAILED ' if wrong else ''}{name}", flush=True)
            if wrong:
                print(text, flush=True)
    print(f"{len(entries) - bad} of {len(entries)} sources compile with the headers in {headers}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
