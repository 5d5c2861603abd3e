"""Stacks at the peak, of real programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.torture import needs_root, unprivileged
from tests.support.wrapped import PROGRAM as OTEL_MEMWATCH
from tests.support.wrapped import call, environment

PROGRAM = """
import sys, time
def quiet():
    time.sleep(0.5)
def load():
    held = []
    for _ in range(50):
        held.append(bytearray(4 << 20))
        time.sleep(0.01)
    return held
quiet()
data = load()
print("done", len(data))
sys.exit(3)
"""

C_PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
static char *volatile kept;
__attribute__((noinline)) void ramp(void) {
    kept = malloc(200 << 20);
    for (long at = 0; at < 200 << 20; at += 4096) {
        kept[at] = 1;
        if (at % (1 << 20) == 0) usleep(2000);
    }
}
int main(void) { usleep(300000); ramp(); return 0; }
"""


JAVA_PROGRAM = """
import java.nio.file.*;
import java.util.*;
public class Grow {
  static boolean captured() {
    try {
      Path path = Path.of(System.getenv("OTEL_MEMWATCH_RUN_DIR"), "stacks.json");
      return Files.readString(path).contains("Grow.load");
    } catch (java.io.IOException error) {
      return false;
    }
  }
  static List<byte[]> load() throws Exception {
    List<byte[]> held = new ArrayList<>();
    // On a busy machine the first capture takes long: grow until there is one.
    for (int i = 0; i < 60 || (i < 400 && !captured()); i++) {
      byte[] block = new byte[4 << 20];
      Arrays.fill(block, (byte) 1);
      held.add(block);
      Thread.sleep(30);
    }
    return held;
  }
  public static void main(String[] words) throws Exception { load(); System.out.println("done"); }
}
"""


def _tool(name: str) -> str:
    """Path of a tool; the test is skipped without it, and fails in CI."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    path = beside if os.path.exists(beside) else shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"needs {name}")
    return path


def _report(folder: Path) -> dict[str, object]:
    found = json.loads(call("report", "latest", "--json", cwd=folder).stdout)
    assert isinstance(found, dict)
    return found


def test_the_line_that_allocated_is_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = call("wrap", "--stacks", "--", sys.executable, "program.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "done 50\n")
    assert "at the peak   running load (program.py:" in done.stderr, done.stderr
    found = _report(tmp_path)
    running = found["running_at_peak"]
    assert isinstance(running, dict)
    assert running["reached"]
    assert running["own"]["function"] == "load"
    text = call("report", "latest", cwd=tmp_path).stdout
    assert "Running at the peak" in text
    page = next((tmp_path / "memwatch-runs").glob("*/report.html")).read_text()
    assert "load (program.py:" in page


def test_the_last_capture_survives_the_memory_limit(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = call("wrap", "--stacks", "--limit", "120MiB", "--", sys.executable, "program.py", cwd=tmp_path)
    if "cgroup" in done.stderr and done.returncode == 2:
        pytest.skip("needs a cgroup for the limit")
    assert done.returncode != 3
    assert "load (program.py:" in done.stderr, done.stderr


def test_a_native_program_names_its_function(tmp_path: Path) -> None:
    _tool("eu-stack")
    (tmp_path / "ramp.c").write_text(C_PROGRAM)
    subprocess.run(["cc", "-O1", "-g", "-o", tmp_path / "ramp", tmp_path / "ramp.c"], check=True)
    done = call("wrap", "--stacks", "--", "./ramp", cwd=tmp_path)
    assert done.returncode == 0
    assert "running ramp (ramp.c:" in done.stderr, done.stderr


def test_a_java_program_names_its_method(tmp_path: Path) -> None:
    _tool("jcmd")
    _tool("javac")
    (tmp_path / "Grow.java").write_text(JAVA_PROGRAM)
    subprocess.run(["javac", "Grow.java"], cwd=tmp_path, check=True)
    done = call("wrap", "--stacks", "--", "java", "-Xmx2g", "Grow", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "Grow.load (Grow.java:" in done.stderr, done.stderr


def test_an_attached_process_is_captured(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("input()\n" + PROGRAM)
    with subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as program:
        assert program.stdin is not None
        watching = subprocess.Popen(
            [sys.executable, "-m", "otel_memwatch", "attach", str(program.pid), "--stacks", "--out", "run"],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        while not (tmp_path / "run" / "samples.jsonl").exists():
            assert watching.poll() is None
        program.stdin.write(b"\n")
        program.stdin.flush()
        program.wait()
        stderr = watching.communicate()[1]
    assert "load (program.py:" in stderr, stderr


def test_watch_captures_this_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from otel_memwatch import watch\nwith watch('run', stacks=True):\n"
        + "".join(f"    {line}\n" for line in PROGRAM.splitlines() if "exit" not in line)
    )
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment(), check=True)
    captures = json.loads((tmp_path / "run" / "stacks.json").read_text())["captures"]
    assert any(
        frame[0] == "load"
        for capture in captures
        for thread in capture["threads"]
        for frame in thread["frames"]
    )


def _with_tool(folder: Path, script: str) -> dict[str, str]:
    """Environment in which eu-stack is this shell script."""
    tools = folder / "tools"
    tools.mkdir()
    fake = tools / "eu-stack"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    return {"PATH": f"{tools}:{os.environ['PATH']}"}


REFUSED = 'echo "eu-stack: dwfl_linux_proc_attach: Operation not permitted" >&2; exit 1'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (REFUSED, "Operation not permitted (in a container: add the capability SYS_PTRACE)"),
        ("echo rubbish", "stacks could not be captured: eu-stack found no frame"),
        ("echo 'TID x:'", "stacks could not be captured: unexpected output of eu-stack"),
        ("kill -9 $$", "stacks could not be captured"),
    ],
)
def test_a_failing_tool_is_one_line_and_the_run_goes_on(tmp_path: Path, script: str, words: str) -> None:
    variables = _with_tool(tmp_path, script)
    (tmp_path / "ramp.c").write_text(C_PROGRAM)
    subprocess.run(["cc", "-O1", "-o", tmp_path / "ramp", tmp_path / "ramp.c"], check=True)
    done = call("wrap", "--stacks", "--", "./ramp", cwd=tmp_path, **variables)
    assert done.returncode == 0
    assert done.stderr.count(words) == 2, done.stderr  # when it happened, and in the summary
    assert "peak memory" in done.stderr


def test_a_refusal_of_the_kernel_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    needs_root()
    _tool("eu-stack")
    not_dumpable = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n"  # PR_SET_DUMPABLE: only root may trace it
    (tmp_path / "program.py").write_text(not_dumpable + PROGRAM)
    tmp_path.chmod(0o777)
    command = unprivileged([*OTEL_MEMWATCH, "wrap", "--stacks", "--", sys.executable, "program.py"])
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "done 50\n")
    words = "stacks are not captured: the kernel refuses to read process"
    assert done.stderr.count(words) == 2, done.stderr  # when it happened, and in the summary
    assert done.stderr.count("run as its owner, or as root") == 2


def test_without_the_option_nothing_is_started(tmp_path: Path) -> None:
    variables = _with_tool(tmp_path, f"echo called >> {tmp_path}/called")
    done = call(
        "wrap", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=60M", "count=1", cwd=tmp_path, **variables
    )
    assert done.returncode == 0
    assert not (tmp_path / "called").exists()
    assert not list((tmp_path / "memwatch-runs").glob("*/stacks.json"))


def test_pprof_reads_the_profile(tmp_path: Path) -> None:
    _tool("go")
    _tool("google-pprof")
    # Slower, so the reader captures it beside other tests.
    (tmp_path / "program.py").write_text(PROGRAM.replace("sleep(0.01)", "sleep(0.04)"))
    call("wrap", "--stacks", "--", sys.executable, "program.py", cwd=tmp_path)
    done = call("export", "latest", "--to", "pprof", "-o", "stacks.pb.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    command = [_tool("go"), "tool", "pprof", "-top", "stacks.pb.gz"]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "load" in read.stdout, read.stdout + read.stderr
    done = call("export", "latest", "--to", "gperftools", "-o", "stacks.heap", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    command = [_tool("google-pprof"), "--text", "stacks.heap"]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "load@program.py" in read.stdout, read.stdout + read.stderr
