"""The jobs that run in the machine, each with its results in a separate folder below the one that is named.

command.json   exit code of the job, its seconds, and when files of the run were written last
output         what it wrote
truth.json     what the workload found (workload.py)
report.json    `report --json` of the run
run.json       the record's own
kept           records of containers, and of the same commands without one, whose peaks are not both exact and equal
zoo.jsonl      the zoo's result for each composition, or the referee's for each real program, a line each
after.json     the control groups and units of ours that are left when all is over
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

BIN = "/opt/venv/bin"
MEMWATCH = f"{BIN}/otel-memwatch"
PATIENT = f"{BIN}/python /opt/jobs/patient.py"
"""The same command with the patience that an emulated machine needs."""
WORKLOAD = f"{sys.executable} -S /opt/jobs/workload.py"
TESTER = "su -l tester -c"
LINGERER = (
    "setpriv --reuid lingerer --regid lingerer --init-groups env HOME=/home/lingerer"
    " XDG_RUNTIME_DIR=/run/user/{uid} systemd-run --quiet --user --wait --pipe"
)


def wrap(name: str, *words: str, options: str = "") -> str:
    """`wrap` of the workload, with its places in the folder of the job."""
    return f"{PATIENT} wrap --out /tmp/{name}/run {options} -- {WORKLOAD} /tmp/{name}/truth.json {' '.join(words)}"


def once(file: str, name: str) -> str:
    """Waits for a file of the workload."""
    return f"while [ ! -e /tmp/{name}/{file} ]; do sleep 0.2; done"


def limited(name: str, options: str = "") -> str:
    """`wrap --limit` of a program that takes ever more."""
    grows = f"{BIN}/python /opt/jobs/grows.py /tmp/{name}/truth.json"
    return f"{PATIENT} wrap --limit 120MiB --out /tmp/{name}/run {options} -- {grows}"


def rereads(name: str, mode: str, limit: str) -> str:
    """`wrap --limit` of reading a file of 64 MiB; see rereads.py."""
    data = f"/tmp/{name}/data"
    program = f"{sys.executable} -S /opt/jobs/rereads.py /tmp/{name}/truth.json {mode} {data}"
    return (
        f"head -c 64M /dev/zero >{data}; sync; systemd-run --quiet --scope -p Delegate=yes"
        f" {PATIENT} wrap --limit {limit} --out /tmp/{name}/run -- {program}"
    )


def processors(name: str, kind: str, options: str = "--cgroup require") -> str:
    """`wrap` of memory that the counters of many processors see late; see processors.c."""
    scope = "systemd-run --quiet --scope -p Delegate=yes " if "require" in options else ""
    return (
        f"{scope}{PATIENT} wrap {options} --out /tmp/{name}/run"
        f" -- /opt/jobs/processors {kind} /tmp/{name}/truth.json"
    )


def packets(name: str) -> str:
    """`wrap` of a client whose packets the kernel handles on up to 64 processors; see packets.py."""
    program = f"{sys.executable} -S /opt/jobs/packets.py"
    return (
        f"echo ffffffff,ffffffff >/sys/class/net/lo/queues/rx-0/rps_cpus; {program} servers;"
        f" systemd-run --quiet --scope -p Delegate=yes {PATIENT} wrap --cgroup require --out /tmp/{name}/run"
        f" -- {program} client /tmp/{name}/truth.json"
    )


BENCH = f"env PYTHONPATH=/opt/zoo 'MEMWATCH_COMMAND={PATIENT}' {BIN}/python"


def guard(name: str) -> str:
    """Four runs that the guard warns of or ends; see guard.py."""
    return f"{BENCH} /opt/jobs/guard.py /tmp/{name}/truth.json"


HOGS = Path("/opt/jobs/hogs")


def hogs() -> str:
    """Hogs below limits of the guard, ended by it; see tests/bench/guard.py."""
    return f"{BENCH} -m tests.bench.guard hogs {HOGS.read_text().strip()}"


def containers(name: str) -> str:
    """Containers of podman, and the same commands without one; see tests/bench/containers.py."""
    words = Path("/opt/jobs/containers").read_text().strip()
    return f"{BENCH} -m tests.bench.containers {words} --keep /tmp/{name}/kept"


def jobs() -> dict[str, str]:
    """Every job as a line of shell, run as root in a service."""
    lingerer = LINGERER.format(uid=subprocess.check_output(["id", "-u", "lingerer"], text=True).strip())
    hog = f"{sys.executable} -S -c 'b = bytearray(b\"x\") * (300 << 20)'"
    return {
        "root-service": wrap("root-service"),
        "root-service-limited": "systemd-run --quiet --wait --pipe -p MemoryMax=1G "
        + wrap("root-service-limited"),
        "root-scope-delegated": "systemd-run --quiet --scope -p Delegate=yes " + wrap("root-scope-delegated"),
        "root-login": f'su -l root -c "{wrap("root-login")}"',
        "user-login": f'{TESTER} "{wrap("user-login")}"',
        "user-login-off": f'{TESTER} "{wrap("user-login-off", options="--cgroup off")}"',
        "impatient": f'{TESTER} "env PATIENCE_FACTOR=0.0001 {wrap("impatient")}"',
        "user-login-limited": f'{TESTER} "touch /tmp/user-login-limited/here;'
        f' while [ ! -e /tmp/user-login-limited/limited ]; do sleep 0.2; done; {wrap("user-login-limited")}" &'
        " while [ ! -e /tmp/user-login-limited/here ]; do sleep 0.2; done;"
        " scope=$(basename $(ls -d /sys/fs/cgroup/user.slice/user-*.slice/session-*.scope | tail -n 1));"
        " systemctl set-property --runtime $scope MemoryMax=2G; touch /tmp/user-login-limited/limited; wait $!",
        "user-scope-delegated": f'{TESTER} "systemd-run --quiet --user --scope -p Delegate=yes '
        f'{wrap("user-scope-delegated")}"',
        "user-service": f'{TESTER} "systemd-run --quiet --user --wait --pipe {wrap("user-service")}"',
        "user-service-limited": f'{TESTER} "systemd-run --quiet --user --wait --pipe -p MemoryMax=1G '
        f'{wrap("user-service-limited")}"',
        "lingerer-service": f"{lingerer} {wrap('lingerer-service')}",
        "memory-limit": f"systemd-run --quiet --scope -p MemoryMax=100M {PATIENT} wrap --out /tmp/memory-limit/run -- {hog}",
        "limit-user": f'{TESTER} "{limited("limit-user")}"',
        "limit-root": f'su -l root -c "{limited("limit-root")}"',
        "limit-delegated": "systemd-run --quiet --scope -p Delegate=yes " + limited("limit-delegated"),
        "limit-no-group": limited("limit-no-group"),
        "limit-rlimit": limited("limit-rlimit", "--limit-fallback rlimit"),
        **{
            f"shortages-{kind}": f"{BENCH} /opt/jobs/shortages.py /tmp/shortages-{kind}/truth.json {kind}"
            for kind in ("own", "disk", "shared")
        },
        "short": rereads("short", "again", "40MiB"),
        "short-of-nothing": rereads("short-of-nothing", "again", "200MiB"),
        "scan": rereads("scan", "once", "40MiB"),
        "terminated": f'{TESTER} "{wrap("terminated", "term")} & {once("ready", "terminated")}; kill \\$!; wait \\$!"',
        "monitor-killed": f'{TESTER} "{wrap("monitor-killed", "hold", "6")} &'
        f' {once("ready", "monitor-killed")}; kill -9 \\$!; wait \\$!; {once("truth.json", "monitor-killed")}; sleep 3"',
        "nested": f'{TESTER} "{PATIENT} wrap --out /tmp/nested/outer -- sh -c \\"{wrap("nested")}; true\\""',
        "leaves": f'{TESTER} "{PATIENT} wrap --out /tmp/leaves/run --'
        f' systemd-run --quiet --user --scope {WORKLOAD} /tmp/leaves/truth.json"',
        "descendant-leaves": f'{TESTER} "{PATIENT} wrap --out /tmp/descendant-leaves/run --'
        f' sh -c \\"systemd-run --quiet --user --scope {WORKLOAD} /tmp/descendant-leaves/truth.json hold 3; true\\""',
        "logout": f'{TESTER} "setsid nohup {wrap("logout", "hold", "20")} >/tmp/logout/nohup 2>&1 & sleep 4"; '
        "while [ ! -e /tmp/logout/truth.json ] && [ $((i += 1)) -lt 60 ]; do sleep 1; done; sleep 5",
        "reload": f'{TESTER} "{wrap("reload", "hold", "4")} & {once("ready", "reload")};'
        ' systemctl --user daemon-reload; wait \\$!"',
        "service-reload": f'{TESTER} "systemd-run --quiet --user --wait --pipe {wrap("service-reload", "hold", "4")} &'
        f' {once("ready", "service-reload")}; systemctl --user daemon-reload; wait \\$!"',
        "cost": f'{TESTER} "{BIN}/python /opt/jobs/cost.py"',
        "ticks": f"{BIN}/python /opt/jobs/ticks.py",
        **{f"{kind}-root": processors(f"{kind}-root", kind) for kind in ("spread", "one", "ahead")},
        "packets-root": packets("packets-root"),
        "brief-root": f"systemd-run --quiet --scope -p Delegate=yes {PATIENT} wrap --cgroup require"
        f" --out /tmp/brief-root/run -- {sys.executable} -S -c 'bytearray(1 << 20)'",
        **{
            f"{kind}-user": f'{TESTER} "{processors(f"{kind}-user", kind, "--cgroup off")}"'
            for kind in ("spread", "one")
        },
        "guard-user": f'{TESTER} "{guard("guard-user")}"',
        "guard-root": f'su -l root -c "{guard("guard-root")}"',
        "guard-harness": f'{TESTER} "systemd-run --quiet --user --wait --pipe -p Delegate=yes -p MemoryMax=250M'
        f' {BIN}/python /opt/jobs/harness.py /tmp/guard-harness/truth.json"',
        # The tasks of a fork bomb as root are limited by the slice, in which the scopes of the runs are too.
        "hogs-root": f'systemctl set-property --runtime user-0.slice TasksMax=390; su -l root -c "{hogs()}"',
        "hogs-user": f'{TESTER} "{hogs()}"',
        "hogs-swap": "fallocate -l 600M /swap && chmod 600 /swap && mkswap -q /swap && swapon /swap &&"
        f' {TESTER} "{hogs()}"; code=$?; swapoff /swap; exit $code',
        "containers-user": f'{TESTER} "{containers("containers-user")}"',
        "containers-root": f'su -l root -c "{containers("containers-root")}"',
        "unit-root": f"{BIN}/python /opt/jobs/units.py /tmp/unit-root/truth.json system",
        "unit-user": f'{TESTER} "{BIN}/python /opt/jobs/units.py /tmp/unit-user/truth.json user"',
        "doctor-root": f"{PATIENT} doctor",
        "doctor-user": f'{TESTER} "{PATIENT} doctor"',
        # As a service with a delegated group; a user and their session are found by it.
        "zoo": "systemd-run --quiet --wait --pipe -p Delegate=yes env PYTHONPATH=/opt/zoo"
        f" {BIN}/python -m tests.zoo {Path('/opt/jobs/zoo').read_text().strip()} --save /results/zoo/zoo.jsonl",
        "referee": "systemd-run --quiet --wait --pipe -p Delegate=yes env PYTHONPATH=/opt/zoo"
        f" {BIN}/python -m tests.referee {Path('/opt/jobs/referee').read_text().strip()} --save /results/referee/zoo.jsonl",
        "demo": f'{TESTER} "cd /tmp/demo; {PATIENT} wrap --out /tmp/demo/run -- {MEMWATCH} demo"',
    }


def left() -> dict[str, list[str]]:
    """What there still is of ours: groups, and units of the managers."""
    groups = [str(path) for path in Path("/sys/fs/cgroup").rglob("memwatch-[0-9]*")]
    units = subprocess.run(
        ["systemctl", "list-units", "--all", "--plain", "--no-legend", "memwatch-[0-9]*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"groups": groups, "units": units.stdout.splitlines()}


def run(name: str, line: str, results: Path) -> None:
    """One job; whatever it does, there are results of it."""
    place, folder = Path("/tmp") / name, results / name
    place.mkdir()
    place.chmod(0o777)
    folder.mkdir()
    begun = time.monotonic()
    with (folder / "output").open("wb") as output:
        try:
            code = subprocess.run(
                ["/bin/bash", "-c", line],
                stdout=output,
                stderr=output,
                timeout=None
                if name.startswith(("zoo", "hogs", "containers", "referee", "ticks"))
                else 900
                if name.startswith("shortages")
                else 300,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    written = {
        file: (place / file).stat().st_mtime
        for file in ("truth.json", "run/run.json")
        if (place / file).exists()
    }
    (folder / "command.json").write_text(
        json.dumps({"line": line, "exit_code": code, "seconds": time.monotonic() - begun, "written": written})
    )
    for file in ("truth.json", "run/run.json", "run/samples.jsonl", "run/report.txt"):
        if (place / file).exists():
            shutil.copy(place / file, folder)
    if (place / "kept").exists():
        shutil.copytree(place / "kept", folder / "kept")
    if (place / "outer/run.json").exists():
        shutil.copy(place / "outer/run.json", folder / "outer.json")
    if (place / "run/run.json").exists():
        with (folder / "report.json").open("wb") as output:
            subprocess.run([MEMWATCH, "report", f"{place}/run", "--json"], stdout=output, check=False)
    told = f"{name} {code} {time.monotonic() - begun:.1f}"
    print(told, flush=True)
    Path("/dev/console").write_text(f"{told}\n")


def main() -> None:
    """All jobs, or those that are named: "one two" one after the other, "one+two" at the same time."""
    results = Path(sys.argv[1])
    wanted = Path("/opt/jobs/only")
    steps = [step.split("+") for step in wanted.read_text().split()] if wanted.exists() else None
    lines = jobs()
    os.environ["PATH"] = f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"
    (results / "machine.json").write_text(
        json.dumps(
            {
                "kernel": os.uname().release,
                "systemd": subprocess.check_output(["systemctl", "--version"], text=True).split()[1],
            }
        )
    )
    for step in [[name] for name in lines] if steps is None else steps:
        threads = [threading.Thread(target=run, args=(name, lines[name], results)) for name in step]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in step:
            (results / name / "after.json").write_text(json.dumps(left()))


main()
