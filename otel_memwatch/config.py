"""THE option table: each setting once, for Click, the manual and `doctor`.

The command line, or the keyword of the Python call, has precedence over the environment variable
`OTEL_MEMWATCH_<NAME>`, and the variable over the default.
"""

from __future__ import annotations

import os

from otel_memwatch.errors import UsageError
from otel_memwatch.runtime.light import Mapping, suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Parsed = TypeVar("Parsed")

PREFIX = "OTEL_MEMWATCH_"


class Option(NamedTuple):
    """One setting."""

    name: str
    """Keyword in Python; on the command line "--" and the name with hyphens."""
    default: Any
    help: str
    parse: Callable[[str], Any]
    """Parser of the text; raises `ValueError` with the reason."""
    metavar: str | None = None
    """Placeholder of the value in help; `None`: a flag, with a --no- form if the default is true."""
    choices: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("wrap", "attach", "watch")
    repeated: bool = False
    """True if several values may be given: the value is a tuple. In its variable, ";" separates them."""
    short: str | None = None
    """One-letter spelling on the command line: "-o"."""

    @property
    def variable(self) -> str:
        """Environment variable of the setting."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Long spelling on the command line."""
        return "--" + self.name.replace("_", "-")


MIN_INTERVAL, MAX_INTERVAL = 0.001, 3600.0
AUTO = "auto"
"""Value of `--interval`: the interval grows with the age of the run."""
SHORTEST_AUTO, LONGEST_AUTO = 0.1, 10.0
"""Bounds of that interval, in seconds."""


def auto_interval(age: float) -> float:
    """Return the longest interval of `--interval auto` in a run of that age: a thousandth of it, within the bounds."""
    return min(LONGEST_AUTO, max(SHORTEST_AUTO, age / 1000))


def shortest_interval(interval: float | str) -> float:
    """Return a setting of `--interval` in seconds; for "auto", the shortest."""
    return SHORTEST_AUTO if interval == AUTO else float(interval)


def parse_sampling(text: str) -> float | str:
    """Parse the seconds between two samples, or "auto"."""
    return AUTO if text.strip() == AUTO else parse_interval(text)


def parse_interval(text: str) -> float:
    """Parse the seconds between two samples or pushes."""
    from otel_memwatch import units

    seconds = units.parse_duration(text)
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise ValueError(f"{text!r} is not between {MIN_INTERVAL:g} and {MAX_INTERVAL:g} seconds")
    return seconds


def parse_seconds(text: str) -> float:
    """Parse a duration of 0 or more, in seconds."""
    from otel_memwatch import units

    seconds = units.parse_duration(text)
    if seconds < 0:
        raise ValueError(f"{text!r} is not a duration of 0 or more")
    return seconds


def parse_size(text: str) -> int:
    """Parse a size above 0, in bytes."""
    from otel_memwatch import units

    size = units.parse_size(text)
    if size <= 0:
        raise ValueError(f"{text!r} is not a size above 0")
    return size


LEAST_LIMIT = 1 << 20
"""Bytes: below it no command starts, so a smaller limit is a size without its unit."""


def parse_limit(text: str) -> int:
    """Parse a memory limit, in bytes. Raises `ValueError` below `LEAST_LIMIT`."""
    if text.startswith("memory="):
        raise ValueError(f"{text!r} is not a size (write {text.removeprefix('memory=')}; --budget has names)")
    size = parse_size(text)
    if size < LEAST_LIMIT:
        raise ValueError(
            f"{text!r} is below 1 MiB, in which no command starts (for {text} MiB write {text}MiB)"
        )
    return size


def parse_duration(text: str) -> float:
    """Parse a duration above 0, in seconds."""
    seconds = parse_seconds(text)
    if not seconds:
        raise ValueError(f"{text!r} is not a duration above 0")
    return seconds


def parse_share(text: str) -> float:
    """Parse a share of 0 or more: 0.05 for "5%"."""
    from otel_memwatch import units

    return units.parse_share(text)


def parse_warn(text: str) -> float:
    """Parse a share of memory that is worth a warning: between 0 and 1."""
    share = parse_share(text)
    if not 0 < share < 1:
        raise ValueError(f"{text!r} is not a share above 0% and below 100%")
    return share


def parse_effect(text: str) -> tuple[str | None, float]:
    """Parse a smallest effect: "2%" of every figure (`None`), or "seconds=10%"."""
    name, _, share = text.rpartition("=")
    return name.strip() or None, parse_share(share)


def parse_budget(text: str) -> tuple[str, float, bool]:
    """Parse a budget. Return the figure's name, the limit in its unit, and False; for "+5%" a share and True."""
    name, _, limit = text.rpartition("=")  # an operation's name may contain the sign
    name, limit = name.strip(), limit.strip()
    if not name or not limit:
        raise ValueError(f"{text!r} is not NAME=LIMIT (write memory=2GiB)")
    if limit.startswith("+"):
        return name, parse_share(limit[1:]), True
    if name in ("seconds", "cpu"):
        return name, parse_duration(limit), False
    if name == "stalled":
        return name, parse_share(limit), False
    if name not in ("memory", "process", "gpu", "written") and ":" not in name and not set("*?[") & set(name):
        known = "memory, process, operation:NAME, operation-process:NAME, gpu, written, cpu, seconds, stalled"
        raise ValueError(f"there is no figure {name!r}; there are {known}")
    return name, float(parse_size(limit)), False


def parse_address(text: str) -> str:
    """Parse an address to listen on: "9464", "0.0.0.0:9464" or "[::1]:9464". Return "HOST:PORT"; loopback by default."""
    host, _, port = text.strip().rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not [HOST:]PORT with a port from 0 to 65535")
    if not host and text.strip().startswith(":"):
        raise ValueError(f"{text!r} names no host; 0.0.0.0:{port} listens on all of them")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, as in [::1]:{port}")
    return f"{host or '127.0.0.1'}:{int(port)}"


def parse_url(text: str) -> str:
    """Parse the URL of an OTLP endpoint. Return it without the path of a signal and without a trailing slash."""
    from urllib.parse import urlsplit

    stripped = text.strip()
    try:
        parts = urlsplit(stripped)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}") from None
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or port == 0
        or any(c.isspace() for c in stripped)
    ):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:4318")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL contains a password and would be recorded; set OTEL_EXPORTER_OTLP_HEADERS")
    if parts.query or parts.fragment:
        raise ValueError("the URL has a query; set keys in OTEL_EXPORTER_OTLP_HEADERS")
    for signal in ("/v1/metrics", "/v1/traces", "/v1/logs"):
        stripped = stripped.rstrip("/").removesuffix(signal)
    return stripped.rstrip("/")


def parse_textfile(text: str) -> str:
    """Parse the path of a file for node_exporter's textfile collector."""
    if not text.endswith(".prom") or text.endswith("/.prom"):
        raise ValueError(f"{text!r} does not end in .prom: node_exporter ignores it")
    return text


def parse_metrics(text: str) -> str:
    """Check a selection of metrics for `catalog.choose_metrics`."""
    from otel_memwatch.catalog import choose_metrics

    choose_metrics(text)
    return text


def parse_flag(text: str) -> bool:
    """Parse a truth value: 1, true, yes, on or their opposites."""
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError(f"{text!r} is not a truth value (write yes or no)")


def parse_name(text: str) -> str:
    """Parse a name of a run: one line, no path, no word that selects runs."""
    name = text.strip()
    if not name or not name.isprintable() or "/" in name or len(name) > 200:
        raise ValueError(f"{text!r} is not a name (write one line of at most 200 characters without a slash)")
    if name in (".", "..", "latest") or name.startswith(("latest:", "-")):
        raise ValueError(f"{text!r} is not a name, because it selects other runs")
    return name


def parse_tag(text: str) -> tuple[str, str]:
    """Parse a tag of a run, "KEY=VALUE"."""
    key, equals, value = text.partition("=")
    key = key.strip()
    plain = key.isascii() and key.replace(".", "").replace("_", "").replace("-", "").isalnum()
    if not equals or not plain or not key[0].isalpha() or len(key) > 100:
        raise ValueError(f"{text!r} is not KEY=VALUE (write rule=align)")
    return key, value.strip()


def parse_store(text: str) -> str:
    """Parse the URL of a directory in a store."""
    kind, divider, path = text.strip().partition("://")
    user, _, secret = path.partition(":")
    if "/" not in user and "@" in secret and not secret.partition("/")[0].isdecimal():  # digits are a port
        raise ValueError(
            "the URL contains a password and would be recorded; configure it in the store's client"
        )
    if not divider or not kind.replace("+", "").isalnum() or not path.strip("/"):
        raise ValueError(f"{text!r} is not a URL of a directory (write s3://bucket/runs)")
    return text.strip()


def parse_rank(text: str) -> int:
    """Parse the number of a rank."""
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdecimal() and len(stripped) < 10):
        raise ValueError(f"{text!r} is not a rank (write 0 or more)")
    return int(stripped)


KILL_AFTER = 10.0
"""Seconds between SIGTERM and SIGKILL, unless `kill_after` is set."""
MOST_REPEATS = 20
"""Largest number of runs of `--repeat auto`."""


def _repeat(text: str) -> int | str:
    if text.strip() == "auto":
        return "auto"
    return _count(text, least=1)


def _warmup(text: str) -> int:
    return _count(text, least=0)


def _count(text: str, least: int) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdecimal() and least <= int(stripped[:7]) <= 10_000):
        raise ValueError(f"{text!r} is not a number from {least} to 10000")
    return int(stripped)


def _exit_code(text: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdecimal() and int(stripped[:4]) <= 255):
        raise ValueError(f"{text!r} is not an exit code from 0 to 255")
    return int(stripped)


def _budget(text: str) -> str:
    """Check a budget and return it unchanged, for the record."""
    parse_budget(text)
    return text


def parse_prediction(text: str) -> tuple[str, float]:
    """Parse a prediction: "memory=18GiB". Return the figure's name, and the value in its unit."""
    name, value, relative = parse_budget(text)
    if relative or name not in ("memory", "process", "gpu", "written", "cpu", "seconds"):
        raise ValueError(f"{text!r} is no prediction of memory, process, gpu, written, cpu or seconds")
    if value <= 0:
        raise ValueError(f"{text!r} is not above zero")
    return name, value


def recorded_predictions(written: object) -> dict[str, float]:
    """Return the valid predictions of a record."""
    found: dict[str, float] = {}
    for entry in written if isinstance(written, list | tuple) else ():
        with suppress(ValueError):
            name, value = parse_prediction(str(entry))
            found[name] = value
    return found


def _prediction(text: str) -> str:
    """Check a prediction and return it unchanged, for the record."""
    parse_prediction(text)
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


# fmt: off
_OPTIONS: tuple[Option, ...] = (
    Option("out", None, "Run directory to create. Default: memwatch-runs/<time>-<name>-<pid>.", _text, "DIR", short="-o"),
    Option("runs", None, "Parent of run directories that --out does not name; commands look for runs here. Default: "
           "memwatch-runs.", _text, "DIR"),
    Option("name", None, "Name of the run, by which other commands find it. Several runs may share a name. Default: none; the "
           "directory is then named after the command.", parse_name, "NAME"),
    Option("tag", (), "Tag of the run, for tables of many runs; may be repeated. Engines add theirs: rule, slurm.job ...",
           parse_tag, "KEY=VALUE", repeated=True),
    Option("group", None, "Name of the run's group: the runs of one job on several ranks or hosts, which other commands treat "
           "as one. Default: from torchrun, MPI, Slurm, Kubernetes or Ray.", parse_name, "NAME"),
    Option("rank", None, "Number of the run in its group, from 0. Default: from the launcher.", parse_rank, "NUMBER"),
    Option("upload", None, "Upload the run directory to this directory in a store, once a minute and at the end. Any URL of "
           "fsspec works: s3://..., gs://...", parse_store, "URL"),
    Option("interval", AUTO, "Sampling interval in seconds, or with a unit: 50ms, 1s. auto: 0.1 s at first, a thousandth of the "
           "run's age later, 10 s at most, and 0.1 s again when memory, page cache or processes change.", parse_sampling,
           "SECONDS|auto"),
    Option("cgroup", "auto", "Run the command in a new cgroup, for the tree's exact peak: if permitted (auto), never (off), "
           "or fail without one (require).", _text, "auto|off|require",
           ("auto", "off", "require"), ("wrap",)),
    Option("exact", False, "Ignored, and removed in the next release: the range without a cgroup is as narrow by default.",
           parse_flag),
    Option("stacks", False, "Capture the stacks of the process that grows, at new peaks of the run's memory: the summary names the "
           "line that ran at the peak. Requires the right to trace the process. Programs other than Python 3.11 to 3.15 also need a tool: see doctor.",
           parse_flag),
    Option("torch_snapshot", False, "Have PyTorch write snapshots of its CUDA allocator into the run directory: at new peaks of reserved "
           "memory, and if an allocation fails. PyTorch then records the stacks of allocations.",
           parse_flag, None, (), ("wrap", "watch")),
    Option("exact_gpu", False, "Reset the GPU high-water marks of PyTorch and TensorFlow at the boundaries of operations, for exact "
           "GPU peaks of operations. The program's max_memory_allocated() returns smaller values.",
           parse_flag, None, (), ("wrap", "watch")),
    Option("quiet", False, "Print nothing at the end.", parse_flag),
    Option("summary", "text", "Format of the summary at the end; json is one line with the verdict.", _text, "text|markdown|json",
           ("text", "markdown", "json")),
    Option("summary_file", None, "Also write the summary to this file; in Markdown or JSON if its name ends in .md or .json.",
           _text, "FILE"),
    Option("step_summary", True, "In GitHub Actions, add the summary to the step's page (GITHUB_STEP_SUMMARY).", parse_flag, None, (), ("wrap",)),
    Option("termination_log", None, "Write the summary to this file at the end: /dev/termination-log in Kubernetes.",
           _text, "FILE", (), ("wrap",)),
    Option("tracker", None, "Send figures and page to this experiment tracker at the end, or to each tracker with a run in the "
           "environment (auto): MLFLOW_RUN_ID, WANDB_RUN_ID ... The command's exit is delayed by at most 2 "
           "s.",
           _text, "auto|mlflow|wandb|tensorboard|trackio", ("auto", "mlflow", "wandb", "tensorboard", "trackio"), ("wrap",)),
    Option("report", True, "Write report.txt and report.html into the run directory, within a second of the end.", parse_flag),
    Option("plot", False, "Draw memory.png into the run directory at the end; takes about a second.", parse_flag),
    Option("prometheus", None, "Serve metrics to Prometheus at this address while the command runs. The default host is 127.0.0.1. "
           "Port 0 selects a free port and prints it.", parse_address, "[HOST:]PORT"),
    Option("prometheus_cert", None, "TLS certificate (PEM) of the Prometheus endpoint.", _text, "FILE"),
    Option("prometheus_key", None, "Private key (PEM) of that certificate.", _text, "FILE"),
    Option("prometheus_client_ca", None, "Only serve clients with a certificate of these authorities (PEM).",
           _text, "FILE"),
    Option("linger", 0.0, "Wait at most this long after the command ends for a scrape of the final values.",
           parse_seconds, "SECONDS"),
    Option("textfile", None, "Write the metrics to this file for node_exporter's textfile collector.", parse_textfile,
           "FILE.prom"),
    Option("otlp", None, "Push metrics and spans to this OTLP endpoint. Default: OTEL_EXPORTER_OTLP_ENDPOINT, if set. The "
           "other OTEL_EXPORTER_OTLP_* variables set headers, TLS and compression.", parse_url, "URL"),
    Option("otlp_protocol", None, "OTLP protocol. Default: OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf.", _text,
           "http/protobuf|grpc", ("http/protobuf", "grpc")),
    Option("otlp_metrics", True, "Push metrics to the OTLP endpoint, not only spans. Turn this off if Prometheus scrapes the run.",
           parse_flag),
    Option("metric_interval", None, "Time between two pushes, and between two writes of the textfile. Default: "
           "OTEL_METRIC_EXPORT_INTERVAL, else 10 s.", parse_interval, "SECONDS"),
    Option("metrics", "default", "Metrics to send and serve: minimal (14 series), default (about 40), all, none, or names separated by "
           "commas. `otel-memwatch metrics` lists the names; memwatch.tree.* selects by prefix.",
           parse_metrics, "minimal|default|all|NAMES"),
    Option("operation_metrics", "gauges", "Metrics of operations: none (off), or the largest peak, time and count for each name (gauges). "
           "With histograms, also distributions of durations and peaks: 60 series for each name.", _text,
           "off|gauges|histograms", ("off", "gauges", "histograms")),
    Option("receive_otlp", False, "Receive the spans that the command's OpenTelemetry SDK sends, in any language, as operations of the "
           "run. Forward them to the configured endpoint.", parse_flag, None, (), ("wrap",)),
    Option("log_dir", None, "Write memory logs with their plots (monitor-log) to DIR at the end.", _text, "DIR"),
    Option("budget", (), "Upper limit of a figure: memory=2GiB, process=, operation:NAME=, gpu=, written=, cpu=, seconds=600, "
           "or memory=+5% against --baseline. If a figure exceeds its budget and the command exits with 0, the "
           "exit code is 1. May be repeated; also read from [tool.otel-memwatch.budgets] in pyproject.toml.", _budget, "NAME=LIMIT", (), ("wrap",), repeated=True),
    Option("baseline", None, "Baseline for budgets such as memory=+5%: a file from check --save-baseline, or git:REF:PATH.", _text, "FILE", (), ("wrap",)),
    Option("budget_exit_code", 1, "Exit code if a figure exceeds its budget and the command exits with 0. With 0, the excess is only "
           "reported.", _exit_code, "CODE", (), ("wrap",)),
    Option("predicted", (), "Predicted figure, such as the result of an estimator: memory=18GiB, gpu=, process=, written=, cpu=, seconds=. "
           "The summary, runs and compare show the measured figure as its multiple. May be repeated.", _prediction, "NAME=VALUE", (),
           ("wrap", "watch"), repeated=True),
    Option("repeat", None, "Repeat the command N times and record each run in one directory, for compare. With auto, 3 to "
           f"{MOST_REPEATS} times: until memory is known to within 1 % and 1 MiB. Stops at the first failure.", _repeat, "N|auto", (), ("wrap",)),
    Option("warmup", 0, "Warm-up runs to discard before --repeat.", _warmup, "N", (), ("wrap",)),
    Option("limit", None, "Memory limit for the whole run, including swap. If the run exceeds it, the kernel kills all of its "
           "processes, and the summary names the largest one. Requires a cgroup for the run; see "
           "--limit-fallback.", parse_limit, "SIZE", (), ("wrap",)),
    Option("limit_fallback", "none", "If no cgroup can be created for the run: fail (none), or limit the private memory of each "
           "process (rlimit). Allocations above that limit fail.", _text, "none|rlimit",
           ("none", "rlimit"), ("wrap",)),
    Option("warn", (), "Write an event when this share of the limit, of an enclosing cgroup's limit or of the machine is in use. "
           "Page cache does not count. May be repeated.", parse_warn, "SHARE", (), ("wrap",), repeated=True),
    Option("stalled", None, "End the run once it makes no progress for this long for lack of memory.", parse_duration, "SECONDS",
           (), ("wrap",)),
    Option("leave", None, "End the run before the machine has less memory available. Growth that begins suddenly may go 0.1 s further.",
           parse_size, "SIZE", (), ("wrap",)),
    Option("timeout", None, "End the run after this time: SIGTERM to all its processes, SIGKILL after --kill-after. The exit code "
           "is 124, as that of timeout(1).", parse_duration, "SECONDS", (), ("wrap",)),
    Option("kill_after", None, f"Grace period between SIGTERM and SIGKILL of --timeout ({KILL_AFTER:g} s). If set, a SIGTERM to "
           "otel-memwatch also ends all processes of the run this way, and a SIGKILL kills the command too.", parse_seconds, "SECONDS", (), ("wrap",)),
    Option("limit_exit_code", None, "Exit code if --limit, --stalled, --leave or --timeout ends the run.", _exit_code, "CODE", (),
           ("wrap",)),
    Option("events", None, "Write a JSON line at the start, at each warning and at the verdict, to this descriptor or file. The "
           "command does not inherit the descriptor.", _text, "FD|FILE", (), ("wrap",)),
    Option("strict", False, "Fail with exit code 125 if the record is incomplete.", parse_flag, None, (),
           ("wrap",)),
)
# fmt: on

OPTIONS: dict[str, Option] = {option.name: option for option in _OPTIONS}
"""Every setting by its name."""


def settings(
    command: str, given: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return all settings of a command: given ones (`None`: not given), else the environment's, else the defaults.

    A given value may be text, as on a command line, or of the option's type. Raises `UsageError` for an unknown name or
    an invalid value; the message names the option or the variable.
    """
    environ = os.environ if environ is None else environ
    known = {name: option for name, option in OPTIONS.items() if command in option.commands}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(
            f"There is no setting {unknown[0]!r} for {command}.", "settings are " + ", ".join(sorted(known))
        )
    result = {}
    for name, option in known.items():
        value = given.get(name)
        if option.repeated:
            # The command line comes after the environment: of two values for one name, the later one counts.
            named = [part for part in environ.get(option.variable, "").split(";") if part.strip()]
            result[name] = tuple(
                [_parse(option, part, option.variable) for part in named]
                + [_parse(option, part, option.flag) for part in several(value)]
            )
        elif value is not None:
            result[name] = _parse(option, value, option.flag)
        elif option.variable in environ:
            result[name] = _parse(option, environ[option.variable], option.variable)
        else:
            result[name] = option.default
    return result


_NEAR_NAME = 0.82
"""Similarity from which an unknown variable counts as misspelt."""


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that looks like a misspelt setting and would be ignored silently.

    Other variables with our prefix may be foreign: Kubernetes sets OTEL_MEMWATCH_PORT for a service of that name.
    """
    unknown = [
        name
        for name in environ
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() not in OPTIONS
    ]
    if not unknown:
        return []
    from difflib import get_close_matches

    return [
        f"{name} is not a setting and is ignored; did you mean {OPTIONS[near[0]].variable}?"
        for name in unknown
        if (near := get_close_matches(name.removeprefix(PREFIX).lower(), OPTIONS, 1, _NEAR_NAME))
    ]


def ignored(settings: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each active setting without effect."""
    return (
        ["--exact is ignored: the range without a cgroup is as narrow by default."]
        if settings["exact"]
        else []
    )


def several(value: Any) -> list[Any]:
    """Return the values of a repeated setting, given as one, some, or a mapping of names to values."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [f"{key}={held}" for key, held in value.items()]
    return [value] if isinstance(value, str) else list(value)


def as_arguments(settings: Mapping[str, Any], command: str) -> list[str]:
    """Return settings as options of a command line, without unset ones and those that the command does not have."""
    words: list[str] = []
    for name, value in settings.items():
        option = OPTIONS[name]
        if value is None or command not in option.commands:
            continue
        if option.repeated:
            words += [f"{option.flag}={part}" for part in several(value)]
        elif option.metavar is not None:
            words.append(f"{option.flag}={value}")
        else:
            words.append(option.flag if option.parse(str(value)) else f"--no-{option.flag[2:]}")
    return words


def parsed(parse: Callable[[str], Parsed], text: str | None, flag: str) -> Parsed | None:
    """Return the value of an option outside the table; `None` if it is not given. Raises `UsageError`."""
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}.") from None


def _parse(option: Option, value: Any, where: str) -> Any:
    text = value if isinstance(value, str) else str(value)
    try:
        parsed = option.parse(text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}.") from None
    if option.choices and parsed not in option.choices:
        raise UsageError(f"{where}: {text!r} is not one of {', '.join(option.choices)}.")
    return parsed
