"""One or several runs of pytest over one import of PyTorch; run_pytest.sh calls it, in python/, and says what its arguments are.

    run_pytest.py cpu|gpu [ARGUMENTS OF PYTEST… [+ ARGUMENTS…]…]

The first run is made in this process and every other one in a fork of it: to import PyTorch and Inductor takes 10 s of an idle processor, more
than most tests. Exits with the code of the first run that failed (1 for one that was killed), and with 77 where nothing can run."""
import importlib
import os
import sys
import tempfile

SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def import_or_skip(name):
    try:
        return importlib.import_module(name)
    except Exception as why:  # whatever a broken installation raises
        if os.environ.get("STEPSCOPE_TEST_VENV"):  # it was asked for, so it is no reason to skip
            sys.exit(f"{sys.executable} was installed and cannot import {name}: {why}")
        skip(f"{sys.executable} cannot import {name} ({why}); name another interpreter in STEPSCOPE_TEST_PYTHON, or a folder to install PyTorch "
             "into in STEPSCOPE_TEST_VENV")


def runs_of(arguments):
    runs = [[]]
    for argument in arguments:
        if argument == "+":
            runs.append([])
        else:
            runs[-1].append(argument)
    return runs


def in_a_fork(run):
    """Begins run() in a fork. Returns the fork's number and the file of what it says."""
    said = tempfile.TemporaryFile()
    sys.stdout.flush()
    fork = os.fork()
    if fork:
        return fork, said
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    code = 1
    try:
        code = run()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what the parent has to do at its end is not for its forks


def beside_each_other(runs, tests):
    """The exit code of the first of tests(run) that failed, 0 where none did; prints what they said, one after the other."""
    try:  # nothing is lost where another PyTorch has no such module
        importlib.import_module("torch._inductor.compile_fx")
    except ImportError:
        pass
    first, *others = runs
    forks = [in_a_fork(lambda run=run: tests(run)) for run in others]
    # Importing Inductor may also begin threads of NVRTC, without which a fork cannot compile CUDA source; the first run can.
    print("pytest", *first, flush=True)
    failed = tests(first)
    print(f"exit {failed}", flush=True)
    for run, (fork, said) in zip(others, forks):
        code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        said.seek(0)
        print("pytest", *run, flush=True)
        sys.stdout.buffer.write(said.read())
        print(f"exit {code}", flush=True)
        failed = failed or code
    return 1 if failed < 0 else failed


def main(part, arguments):
    sys.path[0] = os.getcwd()  # the tests import the package of the folder that they run in
    torch, pytest = import_or_skip("torch"), import_or_skip("pytest")
    if part == "gpu" and not torch.cuda.is_available():
        skip("PyTorch sees no CUDA device")

    def tests(run):
        return int(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "gpu" if part == "gpu" else "not gpu", *run]))

    runs = runs_of(arguments)
    if len(runs) == 1:
        return tests(runs[0])
    if part == "gpu":
        sys.exit("run_pytest.sh: runs beside each other are for the cpu: a CUDA context does not outlive a fork")
    return beside_each_other(runs, tests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
