"""Puts the built library into the package, if there is one; without it the package is installed and asks for STEPSCOPE_OPS_LIBRARY."""
import atexit
import os
import pathlib
import shutil
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before 70.1: a wheel with the library is then also of this version of Python
    bdist_wheel = None


def built_library():
    named = os.environ.get("STEPSCOPE_OPS_LIBRARY")
    if named and not os.path.isfile(named):
        # pip runs this in the package's folder and does not say where it was called.
        seen = "no such file" if os.path.isabs(named) else f"no file {os.path.abspath(named)}, seen from the folder where the package is built"
        raise SystemExit(f"STEPSCOPE_OPS_LIBRARY={named}: {seen}; expected the absolute path of libstepscope_ops.so")
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


class OfThisPlatform(Distribution):
    """With the library the package is of the platform that this was built on: pip elsewhere must not take the wheel for its own."""

    def has_ext_modules(self):
        return built_library() is not None


commands = {"build_py": WithLibrary}
if bdist_wheel is not None:
    class OfAnyPython(bdist_wheel):
        """ctypes loads the library, which knows nothing of Python."""

        def get_tag(self):
            python, abi, platform = super().get_tag()
            return ("py3", "none", platform) if self.distribution.has_ext_modules() else (python, abi, platform)

    commands["bdist_wheel"] = OfAnyPython

# Not into the checkout: what an earlier installation left in python/build would get into the next one, an old library too.
scratch = tempfile.mkdtemp()
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(distclass=OfThisPlatform, cmdclass=commands,
      options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}})
