"""Examples of every command, for help and manual pages: a line to type, and its meaning."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "wrap": (
        ("otel-memwatch wrap -- python train.py", "record it; report and page are below memwatch-runs"),
        ("otel-memwatch wrap -o runs/a -- make -j8", "record into the directory runs/a"),
        ("otel-memwatch wrap -- sh -c 'sort big.txt | uniq -c'", "record a shell command line"),
        ("otel-memwatch wrap --quiet --interval 1s -- ./job", "sample once a second, print nothing"),
        ("otel-memwatch wrap --summary-file out.md -- pytest", "write the summary as Markdown, for CI"),
        ("otel-memwatch wrap --otlp http://collector:4318 -- ./job", "push metrics and spans while it runs"),
    ),
    "attach": (
        ("otel-memwatch attach 4711", "record until the process ends, or Ctrl-C"),
        ("otel-memwatch attach gunicorn", "record a program or script by its name, with its workers"),
        ("otel-memwatch attach --unit nginx", "record a systemd unit, again after each restart"),
        ("otel-memwatch attach --container web", "record a container"),
    ),
    "stop": (
        ("otel-memwatch stop", "stop the newest recording of attach"),
        ("otel-memwatch stop nginx.service", "stop recording a unit, by the name of its run"),
    ),
    "mark": (
        ("otel-memwatch mark Download", "start the phase Download in a script under wrap"),
        ("otel-memwatch mark --end", "end the last phase"),
    ),
    "live": (
        ("otel-memwatch live", "show the newest run below memwatch-runs"),
        ("otel-memwatch live 4711", "show the run that recorded this process"),
        ("otel-memwatch live --once runs/a", "print one snapshot as text"),
    ),
    "report": (
        ("otel-memwatch report", "report the newest run below memwatch-runs"),
        ("otel-memwatch report runs/a --json", "print its figures as JSON"),
        ("otel-memwatch report runs/a --format markdown > comment.md", "write it as Markdown"),
        ("otel-memwatch report --follow", "print status lines, then the summary"),
    ),
    "plot": (
        ("otel-memwatch plot", "draw memory.png in the newest run"),
        (
            "otel-memwatch plot runs/a -o a.svg --dark --size 10x6",
            "draw a vector picture with a dark background",
        ),
        ("otel-memwatch plot runs/a --from 2min --to 3min -o part.png", "draw one minute of it"),
        ("otel-memwatch plot runs/a runs/b -o both.png", "draw two runs into one picture"),
    ),
    "export": (
        ("otel-memwatch export runs/a --to csv -o a.csv", "write every sample as a row"),
        ("otel-memwatch export --to perfetto -o trace.json", "write the newest run for ui.perfetto.dev"),
    ),
    "replay": (
        ("otel-memwatch replay runs/a --otlp http://127.0.0.1:4318", "send it with its original timestamps"),
    ),
    "runs": (
        ("otel-memwatch runs", "list the runs below memwatch-runs, newest last"),
        ("otel-memwatch runs --last 10 --sort -peak", "list the newest ten, largest first"),
        ("otel-memwatch runs --json results/", "list runs as JSON"),
    ),
    "check": (("otel-memwatch check runs/a --budget memory=2GiB", "exit with 1 if it needed more"),),
    "compare": (("otel-memwatch compare runs/a runs/b", "compare b with a"),),
    "metrics": (("otel-memwatch metrics", "list every metric with unit and meaning"),),
    "doctor": (("otel-memwatch doctor", "check what is exact here, and the cost of watching"),),
    "demo": (("otel-memwatch wrap -- otel-memwatch demo", "record the demonstration"),),
    "tradeoff": (
        ("otel-memwatch tradeoff results.csv -o tables", "make a table and a plot from a file of results"),
    ),
    "man": (
        ("otel-memwatch man wrap | man -l -", "read the page"),
        ("otel-memwatch man > ~/.local/share/man/man1/otel-memwatch.1", "install the page"),
    ),
}


def example_lines(command: str) -> list[str]:
    """Return the examples of a command as lines of text, each with its meaning after a "#"."""
    listed = EXAMPLES.get(command, ())
    width = max((len(line) for line, _ in listed), default=0)
    return [f"{line:<{width}}  # {meaning}" for line, meaning in listed]
