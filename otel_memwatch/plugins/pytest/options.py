"""Options of `pytest --memwatch`. Every pytest loads this module, so it imports nothing else.

argparse formats help texts with `%`, so write `%%` for a percent sign.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    import pytest

MARK = (
    "memwatch(limit=None, added=None, tree=None, growth=None): memory limits for the test's call, such as "
    '"200 MiB": peak of the process, memory added to the size before the call, peak of the process with all its '
    "children, and memory still in use after the call"
)
LIMIT_MEMORY = "limit_memory(size): limit for the memory that the test's call adds, as in pytest-memray"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options; each has an ini value of the same name."""
    group = parser.getgroup("memwatch", "memory of every test (otel-memwatch)")
    group.addoption("--memwatch", action="store_true", default=None, help="measure the memory of every test")
    parser.addini("memwatch", "measure the memory of every test (--memwatch)", type="bool", default=False)
    for flag, metavar, text in (
        (
            "--memwatch-limit",
            "SIZE",
            'memory limit for each test without a limit of its own, such as "2 GiB"',
        ),
        ("--memwatch-top", "N", "number of rows in the final table (default: 10)"),
        (
            "--memwatch-save",
            "FILE",
            "save the memory that each test added as a new baseline, if all tests pass",
        ),
        (
            "--memwatch-add",
            "FILE",
            "add this session to a baseline, if all tests pass (with workers, add at least three sessions)",
        ),
        (
            "--memwatch-compare",
            "FILE",
            "compare the memory that each test added with a baseline: a file, or git:REF:PATH",
        ),
        (
            "--memwatch-fail",
            "+SHARE",
            'fail if a test certainly added this much more than in the baseline, such as "+5%%"',
        ),
        ("--memwatch-json", "FILE", "write the figures of all tests to a file"),
        ("--memwatch-out", "DIR", "run directory to create (default: memwatch-runs/<time>-pytest-<pid>)"),
    ):
        group.addoption(flag, metavar=metavar, default=None, help=text)
        # pytest prints the help of ini values as it is.
        parser.addini(flag[2:].replace("-", "_"), text % (), default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark; with `--memwatch`, load the rest of the plugin."""
    config.addinivalue_line("markers", MARK)
    given = config.getoption("memwatch")
    if not (config.getini("memwatch") if given is None else given):
        return
    if not config.pluginmanager.hasplugin("memray"):
        config.addinivalue_line("markers", LIMIT_MEMORY)
    from otel_memwatch.plugins.pytest.session import register

    register(config)
