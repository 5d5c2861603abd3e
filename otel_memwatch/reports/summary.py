"""Summary at the end of `wrap`: peak memory, limit, result, largest operations and processes, further commands."""

from __future__ import annotations

import os

from otel_memwatch.record.format import PAGE_FILE, RUN_FILE
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.reports.sections import headline
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean, command_line, from_here, shell_word, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_LABEL = 14
_NAME = 40


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write the summary as UTF-8, for the terminal of `options["display"]`."""
    text = summary(run, options.get("display") or FILE) + "\n"
    out.write(text.encode("utf-8", "backslashreplace"))


def summary(
    run: RecordedRun,
    display: Display = FILE,
    *,
    public: bool = False,
    more: Iterable[tuple[str, str]] = (),
) -> str:
    """Return the summary, without a newline at its end.

    Args:
        run: the run.
        display: the terminal or file that it is written for.
        public: omit arguments of commands, for texts that leave the machine.
        more: labels and values to show before the links, such as advice.

    """
    page = TerminalPage(display, label_width=_LABEL)
    own = "otel-memwatch"
    command = clean(public_name(run.command)) if public else command_line(run.command)
    program, _, rest = command.partition(" ")
    # Avoid "otel-memwatch: otel-memwatch demo".
    subject = rest if os.path.basename(program) == own and rest else command
    kind, target, _ = run.fields.target_group
    page.heading(f"{own}: {subject if kind is None or target is None else f'{kind} {clean(target)}'}")
    headline.facts(run, page, public=public)
    _group(run, page)
    headline.misplaced_option(run, page)
    headline.missed_samples(run, page)
    headline.trouble(run, page)
    for label, value in more:
        page.fact(label, value)
    if os.path.exists(f"{run.directory}/{RUN_FILE}"):  # it may have been deleted
        page.fact("details", f"otel-memwatch report {_shell_path(run.directory)}", "faint")
        if os.path.exists(f"{run.directory}/{PAGE_FILE}"):
            page.fact("page", _shell_path(f"{run.directory}/{PAGE_FILE}"), "faint")
    return page.text().rstrip("\n")


def _group(run: RecordedRun, page: TerminalPage) -> None:
    group = run.fields.group
    name, size = group.group, group.size
    if name is None or group.rank is None or size == 1:
        return
    of_size = "" if size is None else f" of {size}"
    words = f"rank {group.rank}{of_size} of {shorten(clean(name), _NAME)}"
    if os.path.exists(run.directory):
        # The directory alone may hold other groups.
        words += (
            f"; all ranks: otel-memwatch report {_shell_path(f'{os.path.dirname(run.directory)}:{name}')}"
        )
    page.fact("group", words)


def _shell_path(path: str) -> str:
    """Return the path as typed into a shell here. Bytes that are no text are quoted for bash, zsh and ksh."""
    near = from_here(path)
    if near.isprintable():
        return shell_word(near)
    characters = [
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\{byte:03o}"
        for byte in os.fsencode(near)
    ]
    return f"$'{''.join(characters)}'"
