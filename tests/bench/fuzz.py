"""The fuzz tests' parsers, guided by coverage: the tests of tests/unit/*/test_fuzz_*.py, fed by atheris.

    python -m tests.bench.fuzz                              each test for a minute
    python -m tests.bench.fuzz --seconds 600 output_of_perf files_of_otlp
    python -m tests.bench.fuzz --list

Needs the tests' tools and `pip install atheris`; without atheris the tests are fed random bytes, which find less. What is
interesting is kept in build/fuzz and taken up by the next run. A finding is printed, the exit code is 1 then;
`MEMWATCH_LONG=1 pytest` with the test's name finds it again at once and shrinks it.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["MEMWATCH_LONG"] = "1"  # else hypothesis keeps no findings

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build/fuzz"
LONGEST_INPUT = 8192
HANG_SECONDS = 60
MEMORY_MIB = 2048
_UNITS = re.compile(r"number_of_executed_units: (\d+)")
_COVERED = re.compile(r"cov: (\d+)")
Feed = Callable[[bytes], object]


def tests() -> dict[str, Any]:
    """The tests that hypothesis feeds, by name; those that need a receiver are made for one."""
    from tests.unit.record import test_fuzz_records
    from tests.unit.runtime.procfs import test_fuzz_parsers

    found: dict[str, Any] = {}
    for module in (test_fuzz_parsers, test_fuzz_records):
        for name, test in vars(module).items():
            if hasattr(test, "hypothesis") and not inspect.signature(test).parameters:
                found[name.removeprefix("test_")] = test
    return found | {
        test.__name__: test
        for test in (test_fuzz_records.bodies_that_are_posted, test_fuzz_records.requests_that_are_none)
    }


@contextlib.contextmanager
def fed(name: str) -> Iterator[Feed]:
    """The function that runs a test on the choices that some bytes stand for."""
    test = tests()[name]
    if hasattr(test, "hypothesis"):
        yield test.hypothesis.fuzz_one_input
        return
    from tests.unit.record.test_fuzz_records import serving

    with serving() as receiver:
        yield test(*receiver).hypothesis.fuzz_one_input


def guided(name: str, seconds: int) -> None:
    """Runs a test under atheris, which ends the process."""
    import atheris

    with atheris.instrument_imports(include=["otel_memwatch"]):
        tests()
    corpus = KEPT / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number in range(8):  # a test makes nothing of fewer bytes than it has choices
        (corpus / f"random-{number}").write_bytes(random.randbytes(LONGEST_INPUT // 2))
    options = {
        "max_total_time": seconds, "max_len": LONGEST_INPUT, "timeout": HANG_SECONDS, "rss_limit_mb": MEMORY_MIB,
        "artifact_prefix": f"{KEPT}/{name}-", "print_final_stats": 1, "len_control": 0,
    }  # fmt: skip
    with fed(name) as feed:

        def one(data: bytes) -> None:
            feed(data)

        atheris.Setup([name, *(f"-{option}={value}" for option, value in options.items()), str(corpus)], one)
        atheris.Fuzz()


def unguided(name: str, seconds: int) -> None:
    """Feeds a test random bytes for so long."""
    units, until = 0, time.monotonic() + seconds
    with fed(name) as feed:
        while time.monotonic() < until:
            feed(random.randbytes(random.randrange(LONGEST_INPUT)))
            units += 1
    print(f"number_of_executed_units: {units}")


def run(name: str, seconds: int) -> bool:
    """Fuzzes a test in a separate process; whether nothing was found."""
    command = [sys.executable, "-m", "tests.bench.fuzz", "--seconds", str(seconds), "--alone", name]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    units, covered = _UNITS.findall(done.stdout), _COVERED.findall(done.stdout)
    words = [f"{units[-1] if units else '?'} inputs"] + ([f"coverage {covered[-1]}"] if covered else [])
    print(f"{name}: {', '.join(words)}, {'nothing found' if done.returncode == 0 else 'FOUND'}", flush=True)
    if done.returncode:
        print(done.stdout[-8000:], flush=True)
    return done.returncode == 0


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="TEST", help="which; all when none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each test")
    parser.add_argument("--list", action="store_true", help="print the names of the tests")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    try:
        import atheris  # noqa: F401 - imported only to see if it exists

        feed = guided
    except ImportError:
        feed = unguided
    if given.alone:
        feed(given.names[0], given.seconds)
        return 0
    known = tests()
    if given.list:
        print("\n".join(known))
        return 0
    if unknown := set(given.names) - known.keys():
        parser.error(f"there is no test {', '.join(sorted(unknown))}; --list names them")
    if feed is unguided:
        print("atheris is not installed (pip install atheris): random bytes, not guided by coverage")
    sound = [run(name, given.seconds) for name in given.names or known]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
