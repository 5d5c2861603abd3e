"""Pictures of the page, as Chromium shows it, to be looked at.

python -m tests.page.shots FOLDER [RUN...]     six runs in FOLDER, each on a screen, in the dark, on a phone, on paper
python -m tests.page.shots --readme            README's picture: the page of `otel-memwatch demo`
python -m tests.page.shots --history PAGE      the guide's picture of many commits, from the page of `tests.bench.history`
python -m tests.page.shots --compare           the guide's picture of two runs
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_memwatch.reports import write
from otel_memwatch.run import load
from tests.support import recorded
from tests.support.browser import Opened, browser
from tests.support.wrapped import PROGRAM, environment

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
README = PICTURES / "page.png"

TRAINING = """
    import multiprocessing, time
    from otel_memwatch import operation

    def load(number):
        block = bytearray((30 + 10 * number) << 20)
        time.sleep(3)

    if __name__ == "__main__":
        workers = [multiprocessing.Process(target=load, args=(number,)) for number in range(4)]
        with operation("Load"):
            data = bytearray(120 << 20)
            time.sleep(0.4)
        for worker in workers:
            worker.start()
        for epoch in range(5):
            with operation(f"epoch {epoch}"):
                for batch in range(6):
                    with operation("batch"):
                        gradient = bytearray((20 + 4 * epoch) << 20)
                        time.sleep(0.06)
                with operation("Evaluate"):
                    spike = bytearray((90 + 10 * epoch) << 20)
                    time.sleep(0.1)
                del spike
        for worker in workers:
            worker.join()
"""
GROWING = """
    import time
    from otel_memwatch import operation
    kept = []
    with operation("Train"):
        for step in range(200):
            with operation(f"step {step}"):
                kept.append(bytearray(4 << 20))
                time.sleep(0.04)
"""
THOUSAND = """
    import time
    from otel_memwatch import operation
    for step in range(100):
        with operation(f"step {step}"):
            for batch in range(9):
                with operation("batch", number=batch):
                    block = bytearray((1 + step % 20) << 20)
                    time.sleep(0.003)
"""
SHELL = """
    otel-memwatch mark Unpack
    head -c 40000000 /dev/urandom > big
    otel-memwatch mark Sort
    sort -S 100M big > /dev/null
    otel-memwatch mark Checksum
    sha256sum big
    otel-memwatch mark Cleaning
    rm big
"""
SOURCE = """
    #include <functional>
    #include <map>
    #include <regex>
    int NAME() { std::regex r("a+b*c"); std::map<int, std::function<int(int)>> m; return std::regex_match("abc", r); }
"""
MAKEFILE = """
objects := $(patsubst %.cc,%.o,$(wildcard *.cc))
all: $(objects)
%.o: %.cc
\tg++ -O1 -c -o $@ $<
"""


def wrapped(folder: Path, *command: str, options: tuple[str, ...] = ()) -> Path:
    run = folder / "run"
    argv = [*PROGRAM, "wrap", "--out", str(run), *options, "--", *command]
    subprocess.run(argv, cwd=folder, env=environment(), check=False)
    return run


def python(folder: Path, name: str, program: str, *options: str) -> Path:
    (folder / name).write_text(textwrap.dedent(program))
    return wrapped(folder, sys.executable, name, options=options)


def shell(folder: Path) -> Path:
    (folder / "job.sh").write_text(textwrap.dedent(SHELL))
    return wrapped(folder, "sh", "job.sh")


def make(folder: Path) -> Path:
    (folder / "Makefile").write_text(MAKEFILE)
    for name in ("parser", "lexer", "render", "network", "storage", "query"):
        (folder / f"{name}.cc").write_text(textwrap.dedent(SOURCE).replace("NAME", name))
    return wrapped(folder, "make", "-j3")


def hour(folder: Path, seconds: int = 3600) -> Path:
    """An hour at ten ticks a second, from the format of a record: too long to record it for a picture."""
    chance = random.Random(1)
    spike = round(seconds * 6.18)

    def ticks() -> Iterator[list[float | None]]:
        read = user = 0.0
        for number in range(seconds * 10):
            time = number / 10
            epoch = time % (seconds / 12) / (seconds / 12)
            memory = 3200 + 1600 * min(1, time / 120) + 1100 * (epoch > 0.85) + 60 * chance.random()
            memory += 350 * math.sin(time / 7) * (0.2 < epoch < 0.8) + 4000 * (number == spike)
            user += 0.1 * (6.5 * (0.2 < epoch < 0.85) + 1 + chance.random())
            read += 2e7 * (epoch < 0.2) * chance.random()
            size = round(memory * recorded.MIB)
            yield [time, size, round(size * 0.45), round(user, 2), round(read)]

    at = spike / 10
    process = {"pid": 100, "start": 0.0, "time": seconds, "command": "python", "argv": ["python", "train.py"]}
    return recorded.record(
        folder / "run",
        seconds=seconds,
        command=["python", "train.py", "--epochs", "12"],
        series=[recorded.TREE, recorded.MAIN, recorded.CPU_USER, recorded.DISK_READ],
        ticks=ticks(),
        peaks={"tree": recorded.peak(9100, "interval", low=9100, high=9300, at=at), "main": recorded.peak(4100, at=at, pid=100)},
        processes=[{"event": "seen", **process, "rss": 1 << 20}, {"event": "exit", **process, "exit_code": 0, "peak": 4 << 30}],
        limits={"cgroup_bytes": 12 << 30},
        totals={"cpu_seconds": 14_000.0, "read_bytes": 7 << 30, "write_bytes": 0, "processes": 5},
    )  # fmt: skip


RUNS: dict[str, Callable[[Path], Path]] = {
    "training": lambda folder: python(folder, "train.py", TRAINING),
    "make": make,
    "shell": shell,
    "killed": lambda folder: python(folder, "leak.py", GROWING, "--limit", "200MiB"),
    "hour": hour,
    "thousand": lambda folder: python(folder, "steps.py", THOUSAND),
}

LOOKS = {
    "screen": {},
    "dark": {"color_scheme": "dark"},
    "phone": {
        "is_mobile": True,
        "has_touch": True,
        "device_scale_factor": 2,
        "screen": {"width": 390, "height": 844},
    },
    "paper": {},
}


def shoot(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for name in names or RUNS:
            place = folder / name
            if not place.exists():
                place.mkdir()
                RUNS[name](place)
            page = write("html", load(place / "run"), folder / f"{name}.html")
            for look, options in LOOKS.items():
                opened = Opened(chromium, page, **options)
                if look == "phone":
                    opened.page.set_viewport_size({"width": 390, "height": 844})
                opened.wait()
                if look == "paper":
                    opened.page.pdf(path=folder / f"{name}.paper.pdf", format="A4", print_background=True)
                    opened.page.emulate_media(media="print")
                    opened.page.set_viewport_size({"width": 720, "height": 1000})
                opened.page.screenshot(path=folder / f"{name}.{look}.png", full_page=True)
                opened.close()


def shoot_for_readme(run: Path) -> None:
    with browser() as chromium:
        opened = Opened(chromium, run / "report.html").wait()
        # The answer, memory over time, the operations, and whose memory it was.
        opened.page.set_viewport_size({"width": 1180, "height": 1200})
        bottom = opened.page.locator(".chart").nth(2).bounding_box()
        clip = {"x": 0, "y": 0, "width": 1180, "height": bottom["y"] + bottom["height"] + 12}
        opened.page.screenshot(path=README, full_page=True, clip=clip)
        opened.close()


JOB = """
    import subprocess, sys, time
    from otel_memwatch import operation
    with operation("train"):
        with operation("load_model"):
            model = bytearray(50 << 20)
            time.sleep(0.2)
        if "--tokenizer" in sys.argv:
            with operation("load_tokenizer"):
                tables = []
                for part in range(6):
                    tables.append(bytearray(30 << 20))
                    time.sleep(0.05)
        command = [sys.executable, "worker.py"]
        workers = [subprocess.Popen(command) for _ in range(4 if "--tokenizer" in sys.argv else 2)]
        for worker in workers:
            worker.wait()
"""
WORKER = "import time; block = bytearray(80 << 20); time.sleep(1)"


def shoot_comparison(folder: Path) -> None:
    (folder / "job.py").write_text(textwrap.dedent(JOB))
    (folder / "worker.py").write_text(WORKER)
    for name, words in (("base", []), ("head", ["--tokenizer"])):
        command = [*PROGRAM, "wrap", "--quiet", "--out", name, "--", sys.executable, "job.py", *words]
        subprocess.run(command, cwd=folder, env=environment(), check=True)
    command = [*PROGRAM, "compare", "base", "head", "--page", "page.html"]
    subprocess.run(command, cwd=folder, env=environment(), check=False)
    with browser() as chromium:
        opened = Opened(chromium, folder / "page.html").wait()
        opened.page.set_viewport_size({"width": 1120, "height": 1060})
        opened.page.screenshot(path=PICTURES / "compare.png")
        opened.close()


def shoot_history(page: Path) -> None:
    with browser() as chromium:
        opened = Opened(chromium, page).wait()
        opened.page.set_viewport_size({"width": 1000, "height": 600})
        opened.page.get_by_role("button", name="One step per run").click()
        opened.page.mouse.move(0, 0)
        opened.page.locator("section").first.screenshot(path=PICTURES / "history.png")
        opened.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--history"]:
        shoot_history(Path(sys.argv[2]).resolve())
    elif sys.argv[1:] in (["--readme"], ["--compare"]):
        with tempfile.TemporaryDirectory() as made:
            if "--compare" in sys.argv:
                shoot_comparison(Path(made))
            else:
                shoot_for_readme(wrapped(Path(made), "otel-memwatch", "demo"))
    elif len(sys.argv) > 1:
        shoot(Path(sys.argv[1]).resolve(), sys.argv[2:])
    else:
        sys.exit(__doc__)
