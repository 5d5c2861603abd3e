"""The compiled parts: of a marked operation, of a repeated sample, of short recipes and of the start of a command; all else about the package is in pyproject.toml."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

from distutils.command.build_scripts import build_scripts  # isort: skip - setuptools brings it

HERE = os.path.abspath(os.curdir)
KIND = os.environ.get("OTEL_MEMWATCH_BUILD", "")
"""What a release wants: a wheel with compiled code ("compiled"), or one for every system ("pure"). Else whatever is possible here."""
FLAGS = ["-g0", f"-ffile-prefix-map={HERE}=."]  # the same bytes wherever it is built

NATIVE = Extension(
    "otel_memwatch.in_target.operations._native",
    [f"otel_memwatch/in_target/operations/{name}.c" for name in ("_native", "_heap")],
    extra_compile_args=FLAGS,
    py_limited_api=True,
    optional=KIND != "compiled",  # without a compiler Python code does the same, more slowly
)
REPEATED = Extension(
    "otel_memwatch.monitor.sampling._repeated",
    ["otel_memwatch/monitor/sampling/_repeated.c"],
    extra_compile_args=FLAGS,
    py_limited_api=True,
    optional=KIND != "compiled",
)
PROGRAM = "otel_memwatch/monitor/launcher/recipe"
SOURCES = sorted(glob.glob("otel_memwatch/monitor/launcher/*.c"))
SCRIPT = "otel-memwatch"
COMPILED = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED") and KIND != "pure"


class BuildWithProgram(build_ext):
    """Build the extension, and the program that records short recipes and starts commands."""

    def run(self) -> None:
        """Build into the build directory, and beside the sources for an editable installation."""
        super().run()
        try:
            objects = self.compiler.compile(
                SOURCES, output_dir=self.build_temp, extra_postargs=[*FLAGS, "-O2"]
            )
            self.compiler.link_executable(objects, PROGRAM, output_dir=self.build_lib)
        except CCompilerError:
            if KIND == "compiled":
                raise
            return
        if self.inplace:
            shutil.copy(os.path.join(self.build_lib, PROGRAM), PROGRAM)


class BuildScripts(build_scripts):
    """Install the compiled program as the command, and the script as its plain twin, if there is a compiled program."""

    def run(self) -> None:
        """Build the script; an installer writes the path of the interpreter into its first line."""
        shutil.rmtree(self.build_dir, ignore_errors=True)  # an earlier build, perhaps of the other kind
        super().run()
        program = os.path.join(self.get_finalized_command("build_ext").build_lib, PROGRAM)
        if COMPILED and os.path.exists(program):
            script = os.path.join(self.build_dir, SCRIPT)
            os.replace(script, os.path.join(self.build_dir, f"plain-{SCRIPT}"))
            shutil.copy(program, script)


setup(
    ext_modules=[NATIVE, REPEATED] if COMPILED else [],
    cmdclass={"build_ext": BuildWithProgram, "build_scripts": BuildScripts},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if COMPILED else {},
)
