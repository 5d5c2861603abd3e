"""The container of a wrapped client, when its first processes end early."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.monitor.run import attach, container_recorder
from otel_memwatch.monitor.run.container_recorder import ContainerRecorder
from otel_memwatch.monitor.run_cgroup import new_containers, target_groups
from otel_memwatch.monitor.run_cgroup.target_groups import TargetGroup
from otel_memwatch.run.container_client import Client
from otel_memwatch.run.ending import describe_end
from otel_memwatch.runtime import kernel, lazy
from otel_memwatch.runtime.procfs import control_group

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 64 << 20
GIVEN = {"quiet": True, "summary": "text", "report": False, "interval": None}
GROUP = TargetGroup("container", "box", "/sys/fs/cgroup/box", 1, born=True)


@pytest.mark.parametrize("searches", [1, 3, 40])
def test_modules_are_loaded_during_the_search(searches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them takes 0.1 s, and longer on a busy machine, in which a short container would end."""
    steps = []

    def search(*_: Any) -> TargetGroup | None:
        steps.append("search")
        return GROUP if steps.count("search") == searches else None

    monkeypatch.setattr(new_containers, "find_new", search)
    monkeypatch.setattr(lazy, "load_module", steps.append)
    monkeypatch.setattr(container_recorder, "readable", lambda *_: [])
    monkeypatch.setattr(container_recorder, "_started", lambda group, _: group)
    assert container_recorder._wait_for(Client("podman", ("alpine",)), 1, 0) == GROUP
    assert steps[0] == "search"
    assert [one for one in steps if one != "search"] == list(container_recorder._MODULES)
    assert steps.count("search") == searches


@pytest.mark.parametrize("ended", [0, 1, 4, 5])
def test_the_process_after_those_that_end_before_the_command_is_recorded(
    ended: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """runc starts processes in the container's group that end before the command runs there."""
    pids, tried = itertools.count(100), []

    def try_to_attach(pid: int, *_: Any, **__: Any) -> bool:
        tried.append(pid)
        if len(tried) <= ended:
            raise attach.NoProcessError(f"There is no process {pid}.")
        return True

    monkeypatch.setattr(control_group, "oldest_member", lambda _: next(pids))
    monkeypatch.setattr(attach, "attach", try_to_attach)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/samples.jsonl").touch()
    if ended < 5:
        container_recorder._record(GROUP, str(tmp_path / "run"), GIVEN, 0)
    else:
        with pytest.raises(attach.NoProcessError):
            container_recorder._record(GROUP, str(tmp_path / "run"), GIVEN, 0)
    assert tried == list(range(100, 100 + min(5, ended + 1)))


def test_the_group_is_the_one_in_which_the_runtime_has_started_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """crun makes a group below the scope of the service manager, after its first process is in the scope.

    The first processes of runc end in the group, which then is empty for a moment.
    """
    names, pids = iter([b"crun\n", b"crun\n", b"busybox\n"]), iter([7, None, 7, 7])
    monkeypatch.setattr(control_group, "oldest_member", lambda _: next(pids))
    monkeypatch.setattr(container_recorder, "readable", lambda *_: [])
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    monkeypatch.setattr(kernel, "read_once", lambda _: next(names))
    monkeypatch.setattr(
        target_groups, "innermost", lambda path: path if next(names, None) else f"{path}/container"
    )
    assert container_recorder._started(GROUP, 0).path == f"{GROUP.path}/container"


def test_a_container_that_ends_before_the_first_sample_leaves_a_sentence_and_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def attach_in_vain(*_: Any, **__: Any) -> bool:
        (tmp_path / "run").mkdir()
        (tmp_path / "run/run.json").touch()
        return True

    monkeypatch.setattr(control_group, "oldest_member", lambda _: 7)
    monkeypatch.setattr(attach, "attach", attach_in_vain)
    container_recorder._record(GROUP, str(tmp_path / "run"), GIVEN, 0)
    assert "only the client was recorded: container box ended at once" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("polls", [1, 2, 3])
def test_the_search_ends_with_the_client_and_a_recording_a_moment_later(
    polls: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prompt without a container must not wait for one."""
    recorder = ContainerRecorder.__new__(ContainerRecorder)
    (ended, recorder._ended), (stop, recorder._stop) = os.pipe(), os.pipe()
    waits = []

    def ends_within(_: ContainerRecorder, seconds: float) -> bool:
        waits.append((seconds, container_recorder.readable([ended, stop], 0)))
        return len(waits) == polls

    killed = []
    recorder.pid = 7
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(ContainerRecorder, "_ends_within", ends_within)
    recorder.finish()
    assert waits == [(1.0, [ended]), (10.0, [ended, stop])][:polls]
    assert killed == ([7] if polls == 3 else [])
    assert ("is incomplete" in capsys.readouterr().err) is (polls == 3)
    for descriptor in (ended, stop, recorder._ended, recorder._stop):
        os.close(descriptor)


@pytest.mark.parametrize("why", ["ended", "recording stopped"])
def test_a_container_killed_at_its_limit(why: str) -> None:
    class Monitor:
        def oom_kills(self) -> int:
            return 1

        def ending(self, *arguments: Any) -> Any:
            return describe_end(*arguments, LIMIT, LIMIT)

    monitor: Any = Monitor()
    assert attach._ending(monitor, why).reason == (
        f"{why}; the kernel's OOM killer killed a process of it, at 64.0 MiB of 64.0 MiB"
    )
