"""`attach --unit` to a service that is restarted: units.py TRUTH system|user.

The file gets an object: the exit code and the words of `attach`, the list of runs, and the report of each run.
`units.py serve FOLDER` is the service. It allocates and releases as many MiB as each new file SIZE.ask says, and renames the file.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

MEMWATCH = [sys.executable, "/opt/jobs/patient.py"]
NAME = "spiking"
UNIT = f"""[Service]
ExecStart=/usr/bin/python3 -S {__file__} serve {{}}
"""
PATIENCE = 200.0


def serve(folder: Path) -> None:
    """Allocate on demand, for ever."""
    held = bytearray(b"x") * (30 << 20)
    while held:
        for ask in folder.glob("*.ask"):
            spike = bytearray(b"y") * (int(ask.stem) << 20)
            del spike
            ask.rename(ask.with_suffix(".done"))
        time.sleep(0.1)


def wait(condition: object, what: str) -> None:
    """Wait until a function returns true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def runs(place: Path) -> list[Path]:
    """Return the run directories, oldest first."""
    return sorted(path for path in (place / "memwatch-runs").glob("*") if (path / "run.json").exists())


def samples(place: Path) -> int:
    """Return the number of lines of the newest run's samples."""
    with contextlib.suppress(OSError, IndexError):
        return (runs(place)[-1] / "samples.jsonl").read_bytes().count(b"\n")
    return 0


def spike(place: Path, mib: int) -> None:
    """Let the service allocate, between samples."""
    before = samples(place)
    wait(lambda: samples(place) > before + 3, "samples before a spike")
    ask = place / f"{mib}.ask"
    ask.touch()
    wait(lambda: not ask.exists(), f"a spike of {mib} MiB")
    before = samples(place)
    wait(lambda: samples(place) > before + 3, "samples after a spike")


def main(truth: Path, manager: str) -> None:
    """Start the service, record it across a restart, and stop the recording."""
    place = truth.parent
    systemctl = ["systemctl", f"--{manager}"]
    folder = Path("/run/systemd/system") if manager == "system" else Path.home() / ".config/systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    unit = folder / f"{NAME}.service"
    unit.write_text(UNIT.format(place))
    said = (place / "said").open("w+")
    try:
        subprocess.run([*systemctl, "daemon-reload"], check=True)
        subprocess.run([*systemctl, "start", NAME], check=True)
        words = ["attach", "--unit", NAME, "--restart-wait", "200"]
        monitor = subprocess.Popen([*MEMWATCH, *words], cwd=place, stderr=said)
        wait(lambda: runs(place), "a run")
        spike(place, 100)
        subprocess.run([*systemctl, "restart", NAME], check=True)
        wait(lambda: len(runs(place)) == 2, "a second run")
        spike(place, 150)
        subprocess.run([*systemctl, "stop", NAME], check=True)
        wait(lambda: (place / "said").read_text().count("Waiting") == 2, "the end")
        stopped = subprocess.run(
            [*MEMWATCH, "stop", f"{NAME}.service"], cwd=place, capture_output=True, text=True
        )
        code = monitor.wait(PATIENCE)
    finally:
        print((place / "said").read_text())
        subprocess.run([*systemctl, "stop", NAME], check=False)
        unit.unlink()
        subprocess.run([*systemctl, "daemon-reload"], check=True)

    def output(*words: str) -> str:
        return subprocess.run(
            [*MEMWATCH, *words], cwd=place, capture_output=True, text=True, check=True
        ).stdout

    found = {
        "exit_code": code,
        "said": (place / "said").read_text(),
        "stopped": stopped.stdout + stopped.stderr,
        "listed": output("runs", f"{NAME}.service"),
        "reports": [json.loads(output("report", str(run), "--json")) for run in runs(place)],
    }
    truth.write_text(json.dumps(found))


if sys.argv[1] == "serve":
    serve(Path(sys.argv[2]))
else:
    main(Path(sys.argv[1]), sys.argv[2])
