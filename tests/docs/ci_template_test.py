"""docs/ci/stepscope.yml compares the right two revisions: the script of its step runs here, in a made repository, with a program that only says what it was asked."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "docs/ci/stepscope.yml").read_text()


def script_of(step):
    """The `run: |` block of a step, without its indentation."""
    lines = TEMPLATE.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.strip() == f"- name: {step}")
    run = next(i for i in range(begin, len(lines)) if lines[i].strip() == "run: |")
    indent = len(lines[run]) - len(lines[run].lstrip()) + 2
    block = []
    for line in lines[run + 1:]:
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        block.append(line[indent:])
    return "\n".join(block) + "\n"


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found}, expected {expected}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        def git(*words):
            return subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, text=True,
                                  capture_output=True).stdout.strip()

        def commit(word):
            git("commit", "-q", "--allow-empty", "-m", word)
            return git("rev-parse", "HEAD")

        program = pathlib.Path(folder) / "stepscope"
        program.write_text('#!/bin/sh\necho "$3" > asked\nexit ${STEPSCOPE_TEST_CODE:-0}\n')
        program.chmod(0o755)

        def asked(head, event, pushed_from="", code=0):
            git("checkout", "-q", head)
            # What GitHub sets of a pull request besides. The branch's tip is where others have gone on.
            of_event = {"GITHUB_BASE_REF": "main"} if event == "pull_request" else {}
            ran = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script_of("Slower than without this change?")],
                                 cwd=folder, capture_output=True, text=True,
                                 env={"PATH": os.environ["PATH"], "GITHUB_EVENT_NAME": event, "GITHUB_STEP_SUMMARY": f"{folder}/summary",
                                      "PUSHED_FROM": pushed_from, "STEPSCOPE_TEST_CODE": str(code), **of_event})
            revision = (pathlib.Path(folder) / "asked").read_text().strip()
            return git("rev-parse", f"{revision}^{{commit}}"), ran.returncode

        git("init", "-q", "-b", "main")
        first = commit("first")
        second = commit("second")
        git("checkout", "-q", "-b", "mine", first)
        commit("mine")
        git("checkout", "-q", "--detach", second)
        git("merge", "-q", "--no-ff", "-m", "what GitHub checks out", "mine")
        merge = git("rev-parse", "HEAD")
        git("checkout", "-q", "main")
        third = commit("of somebody else, merged since")
        git("update-ref", "refs/remotes/origin/main", third)
        check("a pull request behind the tip of its branch", asked(merge, "pull_request"), (second, 0))
        check("a push of two commits", asked(third, "push", first), (first, 0))
        check("a push to a new branch", asked(third, "push", "0" * 40), (second, 0))
        check("a push that replaced the history", asked(third, "push", merge), (second, 0))
        check("slower", asked(third, "push", first, 1), (first, 1))
        check("undecided is no failure", asked(third, "push", first, 4), (first, 0))
    groups = [line for line in TEMPLATE.splitlines() if line.lstrip().startswith("concurrency:")]
    check("groups, of which GitHub cancels what waits second", groups, [])


if __name__ == "__main__":
    main()
