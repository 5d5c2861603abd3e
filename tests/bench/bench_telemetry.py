"""What telemetry costs: CPU of a scrape and of a push against a bare loop, with trees of 1, 10 and 100 processes; memory;
how long the end of a run waits for it; how many of many operations arrive.

Run it as a script. It prints ratios and medians; machines differ, so nothing here passes or fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.otlp_sink import OtlpSink

WRAP = [sys.executable, "-m", "otel_memwatch", "wrap", "--quiet", "--no-report", "--no-plot"]
REQUESTS = 60


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TRACE"))}


def tree(processes, seconds):
    """A command with so many sleeping processes."""
    script = f"for i in $(seq {processes - 1}); do sleep {seconds} & done; sleep {seconds}"
    return ["sh", "-c", script] if processes > 1 else ["sleep", str(seconds)]


def cpu(pid):
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    """Resident MiB of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def started(options, processes, seconds, directory):
    job = subprocess.Popen(
        [*WRAP, *options, "--out", str(directory), "--", *tree(processes, seconds)],
        stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    url = re.search(r"http://\S+", job.stderr.readline().decode())[0] if "--prometheus" in options else None
    time.sleep(2)
    return job, url


def scrapes(directory):
    print(f"\nScrape of {REQUESTS} pages, monitor at 1 Hz")
    print(
        f"{'processes':>10} {'page KiB':>9} {'CPU ms each':>12} {'of a core at 15 s':>18} {'median ms':>10}"
    )
    for processes in (1, 10, 100):
        job, url = started(
            ["--prometheus", "0", "--interval", "1"], processes, 30, directory / f"s{processes}"
        )
        time.sleep(1)
        idle_from, idle_cpu = time.monotonic(), cpu(job.pid)
        time.sleep(3)
        idle = (cpu(job.pid) - idle_cpu) / (time.monotonic() - idle_from)
        before, began, times, size = cpu(job.pid), time.monotonic(), [], 0
        for _ in range(REQUESTS):
            start = time.perf_counter()
            with urllib.request.urlopen(url, timeout=20) as response:
                size = len(response.read())
            times.append(time.perf_counter() - start)
        spent = cpu(job.pid) - before - idle * (time.monotonic() - began)
        each = spent / REQUESTS
        print(
            f"{processes:>10} {size / 1024:>9.1f} {each * 1e3:>12.2f} {each / 15:>17.4%} {statistics.median(times) * 1e3:>10.2f}"
        )
        job.terminate()
        job.communicate(timeout=60)


def pushes(directory):
    print("\nPush of metrics by OTLP every 0.2 s against none, monitor at 1 Hz, 8 s")
    print(
        f"{'processes':>10} {'CPU s with':>11} {'without':>8} {'pushes':>7} {'CPU ms each':>12} {'of a core at 10 s':>18}"
    )
    for processes in (1, 10, 100):
        sink = OtlpSink()
        spent = {}
        for name, options in (
            ("with", ["--otlp", sink.url, "--metric-interval", "0.2"]),
            ("without", ["--otlp", sink.url, "--metric-interval", "3600"]),
        ):
            before_requests = len(sink.requests)
            job, _ = started([*options, "--interval", "1"], processes, 30, directory / f"p{processes}{name}")
            before = cpu(job.pid)
            time.sleep(8)
            spent[name] = cpu(job.pid) - before
            if name == "with":
                count = max(1, round((len(sink.requests) - before_requests) * 8 / 10))
            job.terminate()
            job.communicate(timeout=60)
        sink.close()
        each = max(0.0, spent["with"] - spent["without"]) / count
        print(
            f"{processes:>10} {spent['with']:>11.2f} {spent['without']:>8.2f} {count:>7} {each * 1e3:>12.2f} {each / 10:>17.4%}"
        )


def memory(directory):
    print("\nResident memory of the monitor after 4 s (budget: 25 MiB recording, 50 MiB exporting)")
    sink = OtlpSink()
    bare = None
    for name, options in (
        ("recording only", []),
        ("--textfile", ["--textfile", str(directory / "x.prom"), "--metric-interval", "0.5"]),
        ("--prometheus", ["--prometheus", "0"]),
        ("--otlp", ["--otlp", sink.url, "--metric-interval", "0.5"]),
        ("--receive-otlp", ["--receive-otlp"]),
        ("all of them", ["--prometheus", "0", "--textfile", str(directory / "y.prom"), "--otlp", sink.url,
                         "--metric-interval", "0.5", "--receive-otlp"]),
    ):  # fmt: skip
        job, url = started(options, 1, 30, directory / f"m{name}")
        if url:
            for _ in range(20):
                with urllib.request.urlopen(url, timeout=20) as response:
                    response.read()
        time.sleep(2)
        size = resident(job.pid)
        bare = bare or size
        print(f"{name:>16} {size:>6.1f} MiB  {size / bare:.2f} of recording only")
        job.terminate()
        job.communicate(timeout=60)
    sink.close()


class CountingSink(OtlpSink):
    """Keeps what it is sent and reads it only when asked: it shares the machine with what is measured."""

    def take(self, path, _headers, body):
        self.requests.append((path, body))
        return 200, "application/x-protobuf", b""

    def arrived(self):
        """Spans of operations."""
        count = 0
        for path, body in self.requests:
            if path == "/v1/traces":
                message = ExportTraceServiceRequest.FromString(body)
                count += sum(
                    span.name == "Step"
                    for r in message.resource_spans
                    for s in r.scope_spans
                    for span in s.spans
                )
        return count


MARK = """
import sys, time
from otel_memwatch.in_target.operations import operation
count, rate, rest = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
start = time.monotonic()
for number in range(count):
    with operation("Step"):
        pass
    ahead = start + number / rate - time.monotonic() if rate else 0
    if ahead > 0.002:
        time.sleep(ahead)
time.sleep(rest)
print(time.monotonic(), flush=True)
"""


def ended(directory, url, count=0, rate=0, rest=3):
    """Seconds from the target's last line to the end of the command; largest resident MiB of the monitor; what it said."""
    options = ["--otlp", url] if url else []
    job = subprocess.Popen(
        [*WRAP, *options, "--out", tempfile.mktemp(dir=directory), "--", sys.executable, "-c", MARK, *map(str, (count, rate, rest))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
    )  # fmt: skip
    largest = 0
    while job.poll() is None:
        with contextlib.suppress(OSError, TypeError):
            largest = max(largest, resident(job.pid))
        time.sleep(0.02)
    end = time.monotonic()
    out, errors = job.communicate()
    return end - float(out), largest, errors


def ends(directory):
    print(
        "\nFrom the target's last line to the end, median of 7 pairs after 3 s (budget: 60 ms healthy, 2 s in all)"
    )
    with socket.socket() as silent, socket.socket() as probe:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        probe.bind(("127.0.0.1", 0))
        sink = CountingSink()
        urls = {
            "none": None,
            "healthy": sink.url,
            "refuses": f"http://127.0.0.1:{probe.getsockname()[1]}",
            "never answers": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        taken = {name: [] for name in urls}
        for _ in range(7):
            for name, url in urls.items():
                taken[name].append(ended(directory, url)[0])
        sink.close()
    for name, seconds in taken.items():
        print(f"{name:>14} {statistics.median(seconds):>6.3f} s  {min(seconds):.3f} to {max(seconds):.3f}")


def deliveries(directory):
    print("\nMany operations to a healthy endpoint")
    print(f"{'operations':>10} {'':>22} {'arrived':>8} {'end s':>6} {'without':>8} {'MiB':>6} {'without':>8}")
    for what, count, rate, rest in (
        ("at 1 500 a second", 37_500, 1500, 0),
        ("burst, 15 s to go", 20_000, 0, 15),
        ("burst at the end", 100_000, 0, 0),
    ):
        sink = CountingSink()
        seconds, largest, errors = ended(directory, sink.url, count, rate, rest)
        bare = ended(directory, None, count, rate, rest)
        sink.close()
        print(
            f"{count:>10} {what:>22} {sink.arrived():>8} {seconds:>6.2f} {bare[0]:>8.2f} {largest:>6.1f} {bare[1]:>8.1f}"
        )
        for line in errors.splitlines():
            print(f"{'':>10} {line.partition('; the record')[0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        memory(Path(place))
        scrapes(Path(place))
        pushes(Path(place))
        ends(Path(place))
        deliveries(Path(place))
