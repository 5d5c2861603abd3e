"""The compiled part of a marked operation; all else about the package is in pyproject.toml."""

from __future__ import annotations

import sys
import sysconfig

from setuptools import Extension, setup

NATIVE = Extension(
    "otel_memwatch.in_target.operations._native",
    ["otel_memwatch/in_target/operations/_native.c"],
    extra_compile_args=["-g0"],
    py_limited_api=True,
    optional=True,  # without a compiler Python code does the same, more slowly
)
COMPILED = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[NATIVE] if COMPILED else [],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if COMPILED else {},
)
