"""The process tree against programs of known behaviour, watched as `wrap` watches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[5]
GUARD = 90.0
MIB = 1 << 20
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
pytestmark = LINUX


def watch(program: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Watches `python -c program`."""
    command = [sys.executable, "-m", "tests.support.tree_watch", json.dumps(options), "--"]
    command += [sys.executable, "-S", "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def most(result: dict[str, Any], name: str) -> float:
    return max(tick.get(name, 0) for tick in result["ticks"])


def of(result: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [record for record in result["records"] if record["event"] == event]


def test_memory_of_the_target_and_of_its_tree() -> None:
    result = watch(
        "import os,time\n"
        "for size in (30, 60):\n"
        "    if not os.fork():\n"
        "        block = bytearray(size << 20); time.sleep(1); os._exit(0)\n"
        "block = bytearray(100 << 20); time.sleep(0.8)\n"
        "os.wait(); os.wait()"
    )
    assert 100 * MIB <= most(result, "process.memory.usage") < 130 * MIB
    assert 190 * MIB <= most(result, "memwatch.tree.memory.usage") < 250 * MIB
    assert most(result, "memwatch.tree.process.count") == 3
    assert most(result, "memwatch.process.memory.peak") >= 100 * MIB
    ended = {record["pid"]: record for record in of(result, "exit")}
    assert len(ended) == 3
    main = ended[result["root"]]
    assert (main["exit_code"], main["childless"]) == (0, False)
    assert main["peak"] <= main["peak_bound"]
    assert result["totals"]["processes"] == 3


def test_what_was_touched_and_freed_before_a_tick_is_in_the_watermark(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    result = watch(
        "import sys,time\nb = bytearray(300 << 20)\ndel b\nopen(sys.argv[1], 'w').close()\ntime.sleep(0.5)",
        ready,
        after=ready,
    )
    assert most(result, "process.memory.usage") < 100 * MIB
    assert of(result, "exit")[0]["peak"] >= 300 * MIB - MIB


def test_cpu_time_of_reaped_children_is_in_the_tree() -> None:
    result = watch(
        "import os\n"
        "def burn():\n"
        "    n = 0\n"
        "    while os.times().user + os.times().system < 0.3: n += 1\n"
        "for _ in range(3):\n"
        "    if not os.fork(): burn(); os._exit(0)\n"
        "    os.wait()"
    )
    totals = result["totals"]
    assert 0.85 <= totals["cpu_user"] + totals["cpu_system"] < 2.5
    main = next(record for record in of(result, "exit") if record["pid"] == result["root"])
    assert main["cpu_user"] + main["cpu_system"] < 0.5


def test_totals_never_fall(tmp_path: Path) -> None:
    result = watch(
        "import os,sys\n"
        "for i in range(12):\n"
        "    if not os.fork():\n"
        "        with open(sys.argv[1] + str(i), 'wb') as f: f.write(bytes(4 << 20))\n"
        "        os._exit(0)\n"
        "    os.wait()",
        str(tmp_path / "f"),
        interval=0.01,
    )
    for name in (
        "memwatch.tree.cpu.time system",
        "memwatch.tree.syscall.io write",
        "memwatch.tree.disk.io write",
    ):
        values = [tick[name] for tick in result["ticks"]]
        assert values == sorted(values)
    # the kernel has counted every byte once, whether a tick saw the child or not
    assert 48 * MIB <= result["totals"]["write_chars"] < 49 * MIB


def test_daemon_that_leaves_its_parent_stays_in_the_tree() -> None:
    result = watch(
        "import os,time\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if not os.fork():\n"
        "        b = bytearray(50 << 20); time.sleep(0.6)\n"
        "        with open('/dev/null', 'wb') as f: f.write(bytes(3 << 20))\n"
        "        os._exit(7)\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(1.0)",
    )
    assert most(result, "memwatch.tree.memory.usage") >= 50 * MIB
    exits = {record.get("exit_code") for record in of(result, "exit")}
    assert exits >= {0, 7}
    daemon = next(record for record in of(result, "exit") if record.get("exit_code") == 7)
    assert daemon["max_rss"] >= 50 * MIB
    assert daemon["childless"] is True
    assert result["totals"]["write_chars"] >= 3 * MIB


def test_orphan_that_no_tick_saw_is_told_by_its_end(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    result = watch(
        "import os,sys,time\n"
        "if not os.fork():\n"
        "    if not os.fork(): os._exit(9)\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(0.2); open(sys.argv[1], 'w').close()",
        ready,
        after=ready,
    )
    told = [record for record in of(result, "exit") if record.get("exit_code") == 9]
    assert len(told) == 1
    assert told[0]["note"] == "never seen alive"


def test_new_program_in_the_same_process_is_told() -> None:
    result = watch("import os,time\ntime.sleep(0.4)\nos.execv('/bin/sleep', ['sleep', '0.4'])", interval=0.05)
    told = [record for record in of(result, "figures") if record.get("note") == "exec"]
    # twice where a tick sees it in mid-exec: the kernel moves the start of the stack once more
    assert 1 <= len(told) <= 2
    assert all((record["command"], record["argv"]) == ("sleep", ["sleep", "0.4"]) for record in told)
    assert of(result, "seen")[0]["argv"][1:3] == ["-S", "-c"]
    assert len({(record["pid"], record["start"]) for record in result["records"]}) == 1


def test_child_between_vfork_and_exec_does_not_count_its_parents_memory_again() -> None:
    # fork_exec with vfork: the child waits in exec for a writer of the FIFO that is its program's interpreter
    result = watch(
        "import ctypes,os,time\n"
        "b = bytearray(200 << 20)\n"
        "libc = ctypes.CDLL(None)\n"
        "CLONE_VM_VFORK = 0x100 | 0x4000 | 17\n"
        "import threading\n"
        "stack = ctypes.create_string_buffer(1 << 16)\n"
        "usleep = ctypes.cast(libc.usleep, ctypes.c_void_p)\n"
        "top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64)\n"
        "pid = libc.clone(usleep, top, CLONE_VM_VFORK, ctypes.c_void_p(800000))\n"
        "os.waitpid(pid, 0)",
    )
    assert most(result, "memwatch.tree.process.count") == 2
    assert most(result, "memwatch.tree.memory.usage") < 260 * MIB


def test_quiet_tree_has_no_unobserved_processes(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    result = watch(
        "import os,sys,time\n"
        "if not os.fork():\n    time.sleep(1.2); os._exit(0)\n"
        "open(sys.argv[1], 'w').close(); time.sleep(1)\nos.wait()",
        ready,
        after=ready,
    )
    # forks of other programs on this machine must not raise it
    before_the_end = [tick for tick in result["ticks"] if tick.get("memwatch.tree.process.count") == 2]
    assert len(before_the_end) > 5
    assert {tick["memwatch.tree.unobserved"] for tick in before_the_end} == {0}


def test_short_lived_children_are_bounded() -> None:
    result = watch(
        "import os\nfor _ in range(200):\n    os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        interval=0.1,
    )
    seen = result["totals"]["processes"]
    assert seen + result["totals"]["unobserved"] >= 201


def test_children_whose_end_is_ignored_are_bounded() -> None:
    result = watch(
        "import os,signal,time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "time.sleep(0.3)\n"
        "for _ in range(50):\n"
        "    if not os.fork(): os._exit(0)\n"
        "time.sleep(0.3)",
        interval=0.1,
    )
    assert result["totals"]["processes"] + result["totals"]["unobserved"] >= 51
    assert any(record.get("note") == "ignores the end of its children" for record in result["records"])


def test_last_figures_of_a_child_whose_end_is_ignored_are_kept() -> None:
    result = watch(
        "import os,signal,time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "ended, lives = os.pipe()\n"
        "if not os.fork():\n"
        "    while os.times().user + os.times().system < 0.4: pass\n"
        "    time.sleep(0.5); os._exit(0)\n"
        "os.close(lives); os.read(ended, 1); time.sleep(0.5)",
        interval=0.05,
    )
    assert result["totals"]["cpu_user"] + result["totals"]["cpu_system"] >= 0.35
    notes = [record.get("note") for record in of(result, "exit")]
    assert "nobody waits for it" in notes


def test_death_by_signal_is_told() -> None:
    result = watch("import os,signal\nos.kill(os.getpid(), signal.SIGKILL)")
    end = of(result, "exit")[0]
    assert end["signal"] == 9
    assert "exit_code" not in end


def test_hundreds_of_processes_with_few_descriptors() -> None:
    program = (
        "import os,time\n"
        "children = []\n"
        "for _ in range(300):\n"
        "    pid = os.fork()\n"
        "    if not pid: time.sleep(60)\n"
        "    children.append(pid)\n"
        "time.sleep(1.5)\n"
        "for pid in children: os.kill(pid, 9)\n"
        "for pid in children: os.waitpid(pid, 0)\n"
    )
    limited = (
        "import resource,runpy,sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "sys.argv = ['tree_watch', '{\"interval\": 0.2}', '--', sys.executable, '-S', '-c', sys.argv[1]]\n"
        "runpy.run_module('tests.support.tree_watch', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert most(result, "memwatch.tree.process.count") == 301
    assert len(of(result, "exit")) == 301


def test_thread_heavy_process() -> None:
    result = watch(
        "import threading,time\n"
        "for _ in range(200): threading.Thread(target=time.sleep, args=(0.8,)).start()\n"
        "import subprocess\nsubprocess.run(['/bin/sleep', '0.5'])",
        interval=0.05,
    )
    assert most(result, "memwatch.tree.thread.count") >= 201
    assert any(record.get("command") == "sleep" for record in result["records"])
    # the numbers that its threads used up are not taken for processes
    assert result["totals"]["unobserved"] < 100


@pytest.mark.quiet  # on a busy machine it takes long to begin
def test_main_thread_that_ends_first_does_not_hide_the_memory() -> None:
    result = watch(
        "import ctypes,threading,time\n"
        "b = bytearray(80 << 20)\n"
        "threading.Thread(target=lambda: (time.sleep(0.8), __import__('os')._exit(0))).start()\n"
        "ctypes.CDLL(None).syscall(60, 0) if __import__('platform').machine() == 'x86_64' else time.sleep(1)",
    )
    sizes = [tick["process.memory.usage"] for tick in result["ticks"] if "process.memory.usage" in tick]
    large = [size for size in sizes if size >= 80 * MIB]
    # it lives for 0.8 s without its main thread, 16 ticks; only while it begins and ends it is smaller
    assert len(large) > len(sizes) / 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run as another user")
def test_what_the_kernel_denies_is_unknown_and_not_zero() -> None:
    # the watcher is user 65534, the target keeps root
    inner = (
        "import os,time\n"
        "if not os.fork():\n"
        "    b = bytearray(40 << 20); time.sleep(1); os._exit(0)\n"
        "os.wait()"
    )
    script = (
        "import os,sys,time,json\n"
        "from otel_memwatch.monitor.sources import Context, open_sources\n"
        "pid = os.fork()\n"
        "if not pid: os.execv(sys.executable, [sys.executable, '-S', '-c', sys.argv[1]])\n"
        "import otel_memwatch.monitor.sources.process_tree, otel_memwatch.monitor.sources.memory_detail\n"
        "time.sleep(0.4)\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "records = []\n"
        "context = Context(pid, 0.05, on_process=records.append)\n"
        "(tree,), _ = open_sources(context, ['process_tree'])\n"
        "tree.read(time.monotonic())\n"
        "time.sleep(0.1)\n"
        "values = tree.read(time.monotonic())\n"
        "print(json.dumps([[' '.join([c.metric, *(v for _, v in c.attributes)]), v]"
        " for c, v in zip(tree.columns, values)]))\n"
        "print(json.dumps([r.note for r in records]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, inner],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values = dict(json.loads(done.stdout.splitlines()[0]))
    assert values["memwatch.tree.memory.usage"] >= 40 * MIB
    assert values["memwatch.tree.process.count"] == 2
    for name in (
        "memwatch.tree.disk.io read",
        "memwatch.tree.disk.io write",
        "memwatch.tree.syscall.io read",
    ):
        assert values[name] is None
    assert set(json.loads(done.stdout.splitlines()[1])) == {"denied"}


def test_both_ways_of_reading_agree() -> None:
    program = (
        "import os,time\n"
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    b = bytearray(60 << 20); os.close(w); os.read(r, 1); os._exit(0)\n"
        "while os.times().user + os.times().system < 0.3: pass\n"
        "b = bytearray(20 << 20); time.sleep(1.2); os.close(w)\nos.wait()"
    )
    ours, other = watch(program), watch(program, system="psutil")
    for name in ("memwatch.tree.memory.usage", "process.memory.usage"):
        assert most(ours, name) == pytest.approx(most(other, name), rel=0.05)
    for name in ("memwatch.tree.process.count", "memwatch.tree.thread.count"):
        assert most(ours, name) == most(other, name) == 2
    assert most(ours, "memwatch.tree.cpu.time user") == pytest.approx(
        most(other, "memwatch.tree.cpu.time user"), abs=0.2
    )
    assert most(ours, "process.memory.virtual") == pytest.approx(
        most(other, "process.memory.virtual"), rel=0.2
    )
    # A file that the interpreter has open for a moment may be seen by one and not by the other.
    assert most(ours, "process.unix.file_descriptor.count") == pytest.approx(
        most(other, "process.unix.file_descriptor.count"), abs=2
    )
    assert [r["event"] for r in other["records"] if r["pid"] == other["root"]][-1] == "exit"
    assert [record.get("exit_code") for record in of(other, "exit") if record["pid"] == other["root"]] == [0]
