"""Puts the built library into the package, if there is one; without it the package is installed and asks for STEPSCOPE_OPS_LIBRARY."""
import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


def built_library():
    named = os.environ.get("STEPSCOPE_OPS_LIBRARY")
    if named:
        return pathlib.Path(named)
    root = pathlib.Path(__file__).resolve().parent.parent
    found = sorted(root.glob("build/*/lib/libstepscope_ops.so"), key=lambda f: f.stat().st_mtime)
    return found[-1] if found else None


class WithLibrary(build_py):
    def run(self):
        super().run()
        library = built_library()
        if library is not None:
            target = pathlib.Path(self.build_lib) / "stepscope" / "lib"
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target / "libstepscope_ops.so")


setup(cmdclass={"build_py": WithLibrary})
