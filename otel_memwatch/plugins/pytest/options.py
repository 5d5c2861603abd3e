"""The options of `pytest --memwatch`. Loaded into every pytest, so that nothing else is imported here."""

from __future__ import annotations

TYPE_CHECKING = False  # the name that type checkers know
if TYPE_CHECKING:
    import pytest

MARK = (
    "memwatch(limit=None, added=None, tree=None, growth=None): limits of the memory of the test's call, such as "
    '"200 MiB": the largest size of the process, by how much that is above the size before, the largest size of the '
    "process with all its children, and how much is kept afterwards"
)
LIMIT_MEMORY = (
    "limit_memory(size): as of pytest-memray; otel-memwatch holds the memory that the call adds to it"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options; each has an ini value of the same name."""
    group = parser.getgroup("memwatch", "memory of every test (otel-memwatch)")
    group.addoption("--memwatch", action="store_true", default=None, help="measure the memory of every test")
    parser.addini("memwatch", "measure the memory of every test (--memwatch)", type="bool", default=False)
    for flag, metavar, text in (
        ("--memwatch-limit", "SIZE", 'limit of the process in every test without one of its own, as "2 GiB"'),
        ("--memwatch-top", "N", "rows of the table at the end (10)"),
        ("--memwatch-save", "FILE", "make a baseline of what each test added, if all pass"),
        (
            "--memwatch-add",
            "FILE",
            "add this session to a baseline, if all pass: with workers it takes three to know what comes out the same",
        ),
        (
            "--memwatch-compare",
            "FILE",
            "compare what each test added with a baseline: a file, or git:REF:PATH",
        ),
        (
            "--memwatch-fail",
            "+SHARE",
            'fail where a test certainly added so much more than in the baseline: "+5%"',
        ),
        ("--memwatch-json", "FILE", "write the figures of all tests into a file"),
        ("--memwatch-out", "DIR", "run directory to create (memwatch-runs/<time>-pytest-<pid>)"),
    ):
        group.addoption(flag, metavar=metavar, default=None, help=text)
        parser.addini(flag[2:].replace("-", "_"), text, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known, and loads the rest where it is wanted."""
    config.addinivalue_line("markers", MARK)
    given = config.getoption("memwatch")
    if not (config.getini("memwatch") if given is None else given):
        return
    if not config.pluginmanager.hasplugin("memray"):
        config.addinivalue_line("markers", LIMIT_MEMORY)
    from otel_memwatch.plugins.pytest.session import register

    register(config)
