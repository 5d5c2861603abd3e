"""Examples of every command: a line that can be typed, and what it does. Help and manual pages show them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "wrap": (
        ("otel-memwatch wrap -- python train.py", "record it; report and page lie below memwatch-runs"),
        ("otel-memwatch wrap -o runs/a -- make -j8", "into a directory of that name"),
        ("otel-memwatch wrap -- sh -c 'sort big.txt | uniq -c'", "a line of a shell"),
        ("otel-memwatch wrap --quiet --interval 1s -- ./job", "one tick a second, nothing printed"),
        ("otel-memwatch wrap --summary-file out.md -- pytest", "the summary as Markdown, for a page in CI"),
        ("otel-memwatch wrap --otlp http://collector:4318 -- ./job", "metrics and spans pushed meanwhile"),
    ),
    "attach": (
        ("otel-memwatch attach 4711", "until that process ends, or Ctrl-C"),
        ("otel-memwatch attach train.py", "the only process of that program or script"),
    ),
    "mark": (
        ("otel-memwatch mark Download", "in a shell script under wrap: the phase Download begins"),
        ("otel-memwatch mark --end", "the last phase ends"),
    ),
    "live": (
        ("otel-memwatch live", "the newest run below memwatch-runs"),
        ("otel-memwatch live 4711", "the run that this process belongs to"),
        ("otel-memwatch live --once runs/a", "one look, as text"),
    ),
    "report": (
        ("otel-memwatch report", "the newest run below memwatch-runs"),
        ("otel-memwatch report runs/a --json", "its figures for a program"),
        ("otel-memwatch report runs/a --format markdown > comment.md", "for a page"),
        ("otel-memwatch report --follow", "lines while it goes on, then its summary"),
    ),
    "plot": (
        ("otel-memwatch plot", "memory.png in the newest run"),
        ("otel-memwatch plot runs/a -o a.svg --dark --size 10x6", "a vector picture on dark paper"),
        ("otel-memwatch plot runs/a --from 2min --to 3min -o part.png", "a minute of it"),
        ("otel-memwatch plot runs/a runs/b -o both.png", "two runs in one picture"),
    ),
    "export": (
        ("otel-memwatch export runs/a --to csv -o a.csv", "every tick as a row"),
        ("otel-memwatch export --to perfetto -o trace.json", "the newest run, for ui.perfetto.dev"),
    ),
    "replay": (
        ("otel-memwatch replay runs/a --otlp http://127.0.0.1:4318", "as it was, with its own time stamps"),
    ),
    "runs": (
        ("otel-memwatch runs", "those below memwatch-runs, the newest last"),
        ("otel-memwatch runs --last 10 --sort -peak", "the newest ten, the largest first"),
        ("otel-memwatch runs --json results/", "for a program"),
    ),
    "check": (("otel-memwatch check runs/a --budget memory=2GiB", "exit code 1 where it needed more"),),
    "compare": (("otel-memwatch compare runs/a runs/b", "what b needs more, or less, than a"),),
    "metrics": (("otel-memwatch metrics", "every metric with its unit and meaning"),),
    "doctor": (("otel-memwatch doctor", "what is exact on this machine, and what watching costs"),),
    "demo": (("otel-memwatch wrap -- otel-memwatch demo", "record the demonstration"),),
    "tradeoff": (
        ("otel-memwatch tradeoff results.csv -o tables", "a table and a plot from a file of results"),
    ),
    "man": (
        ("otel-memwatch man wrap | man -l -", "read it"),
        ("otel-memwatch man > ~/.local/share/man/man1/otel-memwatch.1", "keep it: man otel-memwatch"),
    ),
}


def told(command: str) -> list[str]:
    """The examples of a command as lines of text, what they do after a "#"; none where there are none."""
    listed = EXAMPLES.get(command, ())
    width = max((len(line) for line, _ in listed), default=0)
    return [f"{line:<{width}}  # {meaning}" for line, meaning in listed]
