"""The compiled part of a marked operation; all else about the package is in pyproject.toml."""

from __future__ import annotations

import os
import sys
import sysconfig

from setuptools import Extension, setup

HERE = os.path.abspath(os.curdir)
KIND = os.environ.get("OTEL_MEMWATCH_BUILD", "")
"""What a release wants: a wheel with compiled code ("compiled"), or one for every system ("pure"). Else whatever is possible here."""

NATIVE = Extension(
    "otel_memwatch.in_target.operations._native",
    ["otel_memwatch/in_target/operations/_native.c"],
    extra_compile_args=["-g0", f"-ffile-prefix-map={HERE}=."],  # the same bytes wherever it is built
    py_limited_api=True,
    optional=KIND != "compiled",  # without a compiler Python code does the same, more slowly
)
COMPILED = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED") and KIND != "pure"

setup(
    ext_modules=[NATIVE] if COMPILED else [],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if COMPILED else {},
)
