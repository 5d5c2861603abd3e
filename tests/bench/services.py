"""Eight real services under load, attached to: verdicts on growth, and the figures of each recording.

    python -m tests.bench.services [--seconds 300] [--days 5] [--only NAME] [--leak MIB_PER_HOUR]

Services: gunicorn with Django and recycled workers, uvicorn, node, a JVM, PostgreSQL, Redis, nginx and a Go program. Missing ones are
skipped. Clients change their rate over the time, with pauses. `attach` records each service at 20 Hz.

Accelerated: the times of the samples are stretched, so `--seconds` count as `--days`. The service is judged at each hour of the stretched
time. A day with a leak in any judgement counts as false. This is harder than real time: a warm-up of half a minute counts as hours. Caches
are filled before the recording, for `--warm` seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_memwatch.run import load
from otel_memwatch.run.growth import TimeFloors
from otel_memwatch.truth.growth import LEAK
from otel_memwatch.truth.service_growth import ServiceLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY, HOUR, MIB = 86400.0, 3600.0, 1 << 20

DJANGO = """
import os, sys
from django.conf import settings
settings.configure(SECRET_KEY="bench", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
cache = {}
def page(request, number):
    cache[number % 500] = [str(n) * 20 for n in range(200)]
    return JsonResponse({"rows": [{"id": n, "text": "x" * (n % 50)} for n in range(number % 900)]})
urlpatterns = [path("<int:number>", page)]
application = get_wsgi_application()
"""
ASGI = """
import json
sessions = {}
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    number = int(scope["path"].strip("/") or 0)
    sessions[number % 2000] = [number] * (number % 300)
    body = json.dumps([{"id": n, "name": "x" * (n % 40)} for n in range(number % 700)]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
NODE = """
const cache = new Map();
require("http").createServer((request, response) => {
  const number = parseInt(request.url.slice(1)) || 0;
  cache.set(number % 1000, Array.from({length: number % 400}, (_, n) => ({id: n, text: "x".repeat(n % 50)})));
  response.end(JSON.stringify(cache.get(number % 1000)));
}).listen(+process.argv[2], "127.0.0.1");
"""
JAVA = """
import com.sun.net.httpserver.*;
import java.net.*;
import java.util.*;
public class Server {
  public static void main(String[] words) throws Exception {
    Map<Integer, List<String>> cache = new HashMap<>();
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), 0);
    server.createContext("/", exchange -> {
      int number = Integer.parseInt(exchange.getRequestURI().getPath().substring(1));
      List<String> rows = new ArrayList<>();
      for (int n = 0; n < number % 900; n++) rows.add("row " + n + "x".repeat(n % 50));
      synchronized (cache) { cache.put(number % 500, rows); }
      byte[] body = String.join(",", rows).getBytes();
      exchange.sendResponseHeaders(200, body.length + 1);
      exchange.getResponseBody().write(body);
      exchange.getResponseBody().write(10);
      exchange.close();
    });
    server.start();
  }
}
"""
GO = """
package main
import ("encoding/json"; "net/http"; "os"; "strconv"; "strings"; "sync")
var lock sync.Mutex
var cache = map[int][]string{}
func main() {
  http.HandleFunc("/", func(out http.ResponseWriter, request *http.Request) {
    number, _ := strconv.Atoi(request.URL.Path[1:])
    rows := []string{}
    for n := 0; n < number%900; n++ { rows = append(rows, strings.Repeat("x", n%50)) }
    lock.Lock(); cache[number%500] = rows; lock.Unlock()
    json.NewEncoder(out).Encode(rows)
  })
  http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}
"""


class Service(NamedTuple):
    """How to start a service on a port, and how to send it one request."""

    needs: tuple[str, ...]
    """Programs on PATH."""
    start: Callable[[Path, int], list[str]]
    """Prepares a folder; returns the command."""
    client: Callable[[int], Callable[[int], None]]
    """Connects to a port; the result sends a request with a number."""


def http_client(port: int) -> Callable[[int], None]:
    """Return a function that requests a page, on one connection while that lasts."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def request(number: int) -> None:
        try:
            connection.request("GET", f"/{number}")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):  # a recycled worker closes its connections
            connection.close()

    return request


def redis_client(port: int) -> Callable[[int], None]:
    """Return a function that sets a key, which expires, or reads one."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)

    def request(number: int) -> None:
        key = f"key{number % 20000}"
        words = ["SET", key, "x" * (number % 3000), "EX", "20"] if number % 3 else ["GET", key]
        connection.sendall(
            f"*{len(words)}\r\n{''.join(f'${len(word)}{chr(13)}{chr(10)}{word}{chr(13)}{chr(10)}' for word in words)}".encode()
        )
        connection.recv(65536)

    return request


def postgres_client(port: int) -> Callable[[int], None]:
    """Return a function that sends a statement to psql, with a new connection after each 200."""
    open_: list[subprocess.Popen[str]] = []

    def request(number: int) -> None:
        if number % 200 == 0 and open_:
            open_.pop().communicate()
        if not open_:
            words = ["psql", "-qAt", "-h", "127.0.0.1", "-p", str(port), "-U", "bench", "postgres"]
            open_.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        pipes = open_[0]
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        pipes.stdin.write(
            f"update t set text = repeat('y', {number % 90}) where id = {number % 20000};"
            f" select count(*), max(text) from (select * from t where id > {number % 15000} order by text) one;\n"
        )
        pipes.stdin.flush()
        pipes.stdout.readline()

    return request


def _write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


def _gunicorn(folder: Path, port: int) -> list[str]:
    _write(folder, "shop.py", DJANGO)
    limits = ["--max-requests", "2000", "--max-requests-jitter", "500"]
    return [
        "gunicorn",
        "-w",
        "3",
        "-b",
        f"127.0.0.1:{port}",
        *limits,
        "--log-level",
        "error",
        "shop:application",
    ]


def _uvicorn(folder: Path, port: int) -> list[str]:
    _write(folder, "api.py", ASGI)
    return ["uvicorn", "--port", str(port), "--log-level", "error", "--lifespan", "off", "api:application"]


def _go(folder: Path, port: int) -> list[str]:
    _write(folder, "server.go", GO)
    subprocess.run(
        ["go", "build", "server.go"], cwd=folder, check=True, env={**os.environ, "GOCACHE": str(folder)}
    )
    return ["./server", str(port)]


def _postgres(folder: Path, port: int) -> list[str]:
    data = folder / "data"
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    folder.chmod(0o777)
    subprocess.run(
        [*as_user, "initdb", "-D", data, "-U", "bench", "-A", "trust"], check=True, stdout=subprocess.DEVNULL
    )
    single = [*as_user, "postgres", "--single", "-D", str(data), "postgres"]
    table = "create table t as select n as id, repeat('x', n % 90) as text from generate_series(1, 20000) n"
    subprocess.run(single, input=table, text=True, check=True, stdout=subprocess.DEVNULL)
    return [*as_user, "postgres", "-D", str(data), "-p", str(port), "-k", str(folder)]


def _nginx(folder: Path, port: int) -> list[str]:
    for number in range(50):
        _write(folder, str(number), "x" * (number * 2000))
    _write(
        folder,
        "nginx.conf",
        f"daemon off; pid {folder}/pid; error_log /dev/null; worker_processes 2; events {{}}\n"
        f"http {{ access_log off; gzip on; gzip_types *; server {{ listen 127.0.0.1:{port}; root {folder};"
        f" rewrite ^/.*?(.)(.)$ /$1 break; }} }}\n",
    )
    return ["nginx", "-c", f"{folder}/nginx.conf", "-e", "/dev/null"]


SERVICES = {
    "gunicorn, Django, recycled": Service(("gunicorn",), _gunicorn, http_client),
    "uvicorn": Service(("uvicorn",), _uvicorn, http_client),
    "node": Service(
        ("node",), lambda folder, port: ["node", _write(folder, "server.js", NODE), str(port)], http_client
    ),
    "JVM": Service(
        ("java",),
        lambda folder, port: ["java", "-Xmx256m", _write(folder, "Server.java", JAVA), str(port)],
        http_client,
    ),
    "PostgreSQL": Service(("postgres", "initdb", "psql"), _postgres, postgres_client),
    "Redis": Service(
        ("redis-server",),
        lambda folder, port: [
            "redis-server",
            "--port",
            str(port),
            "--save",
            "10 1000",
            "--dir",
            str(folder),
            "--logfile",
            "log",
        ],
        redis_client,
    ),
    "nginx": Service(("nginx",), _nginx, http_client),
    "Go": Service(("go",), _go, http_client),
}


def load_service(client: Callable[[int], None], stop: threading.Event, seed: int) -> None:
    """Send requests at a rate that changes every few seconds, with pauses."""
    rng = random.Random(seed)
    while not stop.is_set():
        rate, until = rng.choice([0, 20, 60, 100, 150]), time.monotonic() + rng.uniform(1, 6)
        while time.monotonic() < until and not stop.is_set():
            if rate:
                with contextlib.suppress(OSError):
                    client(rng.randrange(1 << 20))
            stop.wait(1 / rate if rate else 0.2)


class Recorded(NamedTuple):
    """A service's recording and its verdicts."""

    lowest: float
    highest: float
    """Memory of no file, in MiB."""
    samples: int
    false_days: int
    kinds: list[str]
    monitor_cpu: float
    """Share of a processor."""


def measure(service: Service, seconds: float, warm: float, days: float, leak: float) -> Recorded:
    """Start a service, load it, attach to it, and judge the recording; `leak`: bytes in an hour that are added to its samples."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        folder, port = Path(home), free_port()
        command = service.start(folder, port)
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            stop = threading.Event()
            try:
                wait_for(port, process)
                clients = [service.client(port) for _ in range(4)]
                loads = [
                    threading.Thread(target=load_service, args=(client, stop, n), daemon=True)
                    for n, client in enumerate(clients)
                ]
                for one in loads:
                    one.start()
                time.sleep(warm)
                cpu = record(process.pid, folder / "run", seconds)
            finally:
                stop.set()
                end(process)
        return judge(folder / "run", seconds, days, leak, cpu)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a service with all its processes. PostgreSQL waits for its clients, so not for long."""
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a service listens."""
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit(f"{process.args!r} has ended with {process.returncode}")


def record(pid: int, run: Path, seconds: float) -> float:
    """Attach to a process for some seconds; return the CPU seconds of the monitor."""
    words = ["attach", str(pid), "--out", str(run), "--interval", "50ms", "--quiet"]
    monitor = subprocess.Popen([sys.executable, "-m", "otel_memwatch", *words])
    time.sleep(seconds)
    fields = Path(f"/proc/{monitor.pid}/stat").read_text().rpartition(")")[2].split()
    monitor.send_signal(signal.SIGINT)
    monitor.wait()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stretched(run: Path, factor: float, leak: float) -> Iterator[tuple[float, ServiceLoad]]:
    """Yield memory and load of each sample, in stretched time."""
    recorded = load(run)
    samples = recorded.record.samples()
    cpu = 0.0
    for sample in samples.each(recorded.started):
        value = sample.needed_low
        cpu = float(sample.cpu_seconds or cpu)
        if value is not None:
            at = (sample.time - recorded.started) * factor
            yield float(value) + leak * (at / HOUR), ServiceLoad(at, cpu * factor, int(sample.processes or 1))


def judge(run: Path, seconds: float, days: float, leak: float, cpu: float) -> Recorded:
    """Judge a recording at each hour of the stretched time."""
    floors, values = TimeFloors(), []
    begin, due = None, HOUR
    false: set[int] = set()
    kinds: list[str] = []
    for value, at in stretched(run, days * DAY / seconds, leak):
        begin = at.time if begin is None else begin
        values.append(value / MIB)
        floors.add(value, at)
        if at.time - begin >= due:
            found = floors.finding(0.0)
            if found is not None and found.kind == LEAK:
                false.add(int((due - 1) // DAY))
                kinds.append(f"leak {found.rate * HOUR / MIB:.1f} MiB/h at {due / HOUR:.0f} h")
            due += HOUR
    written = json.loads((run / "run.json").read_text())["findings"]
    kinds = [*kinds[:2], *sorted({one["kind"] for one in written})]
    return Recorded(min(values), max(values), len(values), len(false), kinds, cpu / seconds)


def main(chosen: argparse.Namespace) -> int:
    """Print a table; return the days with a false leak."""
    print(
        "| service | samples | memory in MiB | days | days with a leak | verdicts | monitor, % of a processor |"
    )
    print("| --- | ---: | --- | ---: | ---: | --- | ---: |", flush=True)
    days = false = 0.0
    for name, service in SERVICES.items():
        missing = [program for program in service.needs if shutil.which(program) is None]
        if chosen.only not in (None, name) or missing:
            if missing:
                print(f"| {name} | - | {', '.join(missing)} missing | | | | |")
            continue
        found = measure(service, chosen.seconds, chosen.warm, chosen.days, chosen.leak * MIB)
        days, false = days + chosen.days, false + found.false_days
        print(
            f"| {name} | {found.samples} | {found.lowest:.1f}-{found.highest:.1f} | {chosen.days:g} | {found.false_days} "
            f"| {', '.join(found.kinds) or '-'} | {100 * found.monitor_cpu:.1f} |",
            flush=True,
        )
    print(f"\ndays with a leak: {false:.0f} of {days:g}")
    return int(false)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each recording")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds under load before it")
    parser.add_argument("--days", type=float, default=5.0, help="that the recording counts as")
    parser.add_argument("--only", choices=SERVICES)
    parser.add_argument(
        "--leak", type=float, default=0.0, help="MiB in an hour of stretched time that are added"
    )
    main(parser.parse_args())
