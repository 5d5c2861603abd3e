"""Eight real services under load, attached to: false leaks in days made of their recordings, and leaks that are named in time.

    python -m tests.bench.services [--seconds 120] [--days 1000] [--slower 1 10 60] [--only NAME] [--keep DIRECTORY]

Services: gunicorn with Django and recycled workers, uvicorn, node, a JVM, PostgreSQL, Redis, nginx and a Go program. Missing ones are
skipped. Clients change their rate over the time, with pauses. `attach` records each service at 20 Hz.

Accelerated: five days begin with the recording, and go on with blocks of its second half in random order, each as long as an eighth of it.
So memory is taken to be stationary after the first half. The service is judged at each hour. A day with a leak in any judgement
counts as false. `--slower`: all that the service does, its warm-up too, takes that many times as long. At 60, a garbage collection each
ten seconds becomes one each ten minutes, and a recording of two minutes lasts two hours.

Leaks are added to days that are made in the same way: 50 MB an hour for 3 h, and 0.8 % an hour (of at least
64 MiB) for 12 h.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
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
STEP, AT_ONCE, LEAKS = 10.0, 5, 20
"""Seconds between two moments, days that are made at once, and leaks of each kind that are added."""

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


class Moment(NamedTuple):
    """A service at a moment of its recording."""

    memory: float
    """Bytes of no file."""
    cpu_seconds: float
    """Used since the moment before."""
    processes: int


@contextlib.contextmanager
def loaded(service: Service, warm: float) -> Iterator[int]:
    """Start a service under load, `warm` seconds before; its PID."""
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
                for seed, client in enumerate(clients):
                    threading.Thread(target=load_service, args=(client, stop, seed), daemon=True).start()
                time.sleep(warm)
                yield process.pid
            finally:
                stop.set()
                end(process)


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


def record(pid: int, run: Path, seconds: float) -> None:
    """Attach to a process for some seconds."""
    words = ["attach", str(pid), "--out", str(run), "--interval", "50ms", "--quiet"]
    monitor = subprocess.Popen([sys.executable, "-m", "otel_memwatch", *words])
    time.sleep(seconds)
    monitor.terminate()
    monitor.wait()


def moments(run: Path, slower: float) -> list[Moment]:
    """Return a recording as one moment for each `STEP` seconds of a time that runs `slower` times as slowly."""
    recorded = load(run)
    found, due, before = [], 0.0, None
    for sample in recorded.record.samples().each(recorded.started):
        at = (sample.time - recorded.started) * slower
        if sample.needed_low is None or sample.cpu_seconds is None or at < due:
            continue
        due = max(due + STEP, at - STEP)
        cpu = float(sample.cpu_seconds) * slower
        found.append(Moment(float(sample.needed_low), cpu - (before or cpu), int(sample.processes or 1)))
        before = cpu
    return found


def continued(recording: list[Moment], rng: random.Random) -> Iterator[Moment]:
    """Yield a recording, and then blocks of its second half in random order, without end."""
    yield from recording
    late = recording[len(recording) // 2 :]
    length = max(1, len(recording) // 8)
    while True:
        begin = rng.randrange(len(late) - length + 1)
        yield from late[begin : begin + length]


def named(recording: list[Moment], seconds: float, leak: float, rng: random.Random) -> list[float]:
    """Return the times at which a leak is named, of one judgement each hour; `leak`: bytes in a second."""
    floors, found, cpu = TimeFloors(), [], 0.0
    for number, moment in enumerate(continued(recording, rng)):
        at = number * STEP
        cpu += moment.cpu_seconds
        floors.add(moment.memory + leak * at, ServiceLoad(at, cpu, moment.processes))
        if (at + STEP) % HOUR == 0 and (one := floors.finding(0.0)) is not None and one.kind == LEAK:
            found.append(at + STEP)
        if at >= seconds:
            return found
    raise AssertionError


def judge(recording: list[Moment], days: int, seed: str) -> tuple[int, int, int]:
    """Return days with a false leak, and the leaks of 50 MB/h and of 0.8 %/h that are named in time, of `LEAKS` each."""
    rng = random.Random(seed)
    false = sum(
        len({int((at - 1) // DAY) for at in named(recording, AT_ONCE * DAY, 0.0, rng)})
        for _ in range(days // AT_ONCE)
    )
    median = sorted(moment.memory for moment in recording)[len(recording) // 2]
    rates = ((50e6, 3), (0.008 * max(median, 64 * MIB), 12))  # less is below the least rise
    in_time = [
        sum(bool(named(recording, hours * HOUR, rate / HOUR, rng)) for _ in range(LEAKS))
        for rate, hours in rates
    ]
    return false, in_time[0], in_time[1]


def main(chosen: argparse.Namespace) -> int:
    """Print a table; return the days with a false leak."""
    print("| service | slower | memory in MiB | days with a false leak | 50 MB/h in 3 h | 0.8 %/h in 12 h |")
    print("| --- | ---: | --- | ---: | ---: | ---: |", flush=True)
    days = chosen.days // len(SERVICES)
    every: dict[float, list[tuple[int, int, int]]] = {slower: [] for slower in chosen.slower}
    with tempfile.TemporaryDirectory() as home:
        for name, service in SERVICES.items():
            missing = [program for program in service.needs if shutil.which(program) is None]
            if chosen.only not in (None, name) or missing:
                if missing:
                    print(f"| {name} | - | {', '.join(missing)} missing | | | |")
                continue
            run = (chosen.keep or Path(home)) / name.partition(",")[0]
            if not run.exists():
                with loaded(service, chosen.warm) as pid:
                    record(pid, run, chosen.seconds)
            for slower, found in every.items():
                recording = moments(run, slower)
                found.append(judge(recording, days, f"{name} {slower}"))
                low, high = (extreme(one.memory for one in recording) / MIB for extreme in (min, max))
                false, fast, slow = found[-1]
                print(
                    f"| {name} | {slower:g} | {low:.1f}-{high:.1f} | {false} of {days} | {fast} of {LEAKS} | {slow} of {LEAKS} |",
                    flush=True,
                )
    for slower, found in every.items():
        false, fast, slow = (sum(column) for column in zip(*found, strict=True))
        all_ = LEAKS * len(found)
        print(
            f"| all | {slower:g} | | {false} of {days * len(found)} | {fast} of {all_} | {slow} of {all_} |"
        )
    return sum(one[0] for found in every.values() for one in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each recording")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds under load before it")
    parser.add_argument("--days", type=int, default=1000, help="of all services together")
    parser.add_argument("--slower", type=float, nargs="+", default=[1.0, 10.0, 60.0])
    parser.add_argument("--only", choices=SERVICES)
    parser.add_argument("--keep", type=Path, help="directory of the recordings; those in it are used again")
    main(parser.parse_args())
