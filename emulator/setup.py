"""Puts the compiled emulator into a wheel. Everything else is in pyproject.toml."""

import importlib.util
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

_EMULATOR = Path("gunreal_emulator")
# The C++ runtime is linked into the library, so that it does not depend on the machine's version. No symbols are kept.
_STATIC = ("-static-libstdc++", "-static-libgcc", "-s")


def _build_module():
    """Loads gunreal_emulator/build.py alone, as the package's dependencies are not installed here."""
    spec = importlib.util.spec_from_file_location("emulator_build", _EMULATOR / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildWithLibrary(build_py):
    """Compiles the emulator, unless there is no compiler or the source tree itself is used."""

    def run(self):
        """Copies the package and compiles the emulator into the copy."""
        super().run()
        if self.editable_mode:
            return
        build = _build_module()
        folder = Path(self.build_lib) / _EMULATOR / "lib"
        try:
            for processor in build.processors():
                build.compile_library(folder / build.library_name(processor), _STATIC, processor=processor)
        except build.EmulatorUnavailable as error:
            self.warn(f"the wheel has no compiled emulator: {error}")


class Platform(Distribution):
    """A distribution that depends on the platform, unless there is no compiler."""

    def has_ext_modules(self):
        """Decides on the wheel's tag, and that its files are in the folder that may contain libraries."""
        return bool(_build_module().find_compiler())


class AnyPython(bdist_wheel):
    """A wheel for any Python 3."""

    def get_tag(self):
        """Returns the tags of Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


setup(distclass=Platform, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython})
