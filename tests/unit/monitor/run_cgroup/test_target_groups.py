"""Units, containers, pods and jobs are found by the control groups of processes, on made-up hierarchies of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run_cgroup import target_groups
from otel_memwatch.monitor.run_cgroup.target_groups import find_group
from otel_memwatch.runtime.procfs import control_group
from otel_memwatch.runtime.procfs.control_group import members, oldest_member

ID = "ab12" + 60 * "0"
OTHER = "ab12" + 60 * "1"
UID = "0a1b2c3d-1111-2222-3333-444455556666"


def machine(folder: Path, *paths: str, version: int = 2, mounted: bool = True) -> str:
    """A machine with a process, 100, 101 ..., in each of these groups. Returns its /proc."""
    point = folder / "cgroup"
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    line = f"30 20 0:25 / {point} rw - {kind}\n" if mounted else ""
    for number, path in enumerate(paths, 100):
        process, directory = folder / "proc" / str(number), point / path.lstrip("/")
        process.mkdir(parents=True)
        (process / "cgroup").write_text(f"0::{path}\n" if version == 2 else f"4:memory:{path}\n1:cpu:/\n")
        fields = " ".join(["S", *["0"] * 18, str(10_000 - number), *["0"] * 30])
        (process / "stat").write_text(f"{number} (job) {fields}\n")
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "cgroup.procs").open("a") as file:
            file.write(f"{number}\n")
        (directory / ("memory.current" if version == 2 else "memory.usage_in_bytes")).write_text("1\n")
    (folder / "proc/self").mkdir(parents=True, exist_ok=True)
    (folder / "proc/self/mountinfo").write_text(line)
    return str(folder / "proc")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "name", "path", "group"),
    [
        ("unit", "nginx", "/system.slice/nginx.service", "/system.slice/nginx.service"),
        ("unit", "run-1.scope", "/user.slice/run-1.scope", "/user.slice/run-1.scope"),
        ("container", ID, f"/docker/{ID}", f"/docker/{ID}"),
        ("container", ID[:12], f"/system.slice/docker-{ID}.scope", f"/system.slice/docker-{ID}.scope"),
        ("container", ID[:4], f"/m.slice/libpod-{ID}.scope/container", f"/m.slice/libpod-{ID}.scope/container"),
        ("container", ID, f"/k.slice/cri-containerd-{ID}.scope", f"/k.slice/cri-containerd-{ID}.scope"),
        ("container", ID, f"/k.slice/crio-{ID}.scope", f"/k.slice/crio-{ID}.scope"),
        ("container", ID, f"/system.slice/containerd.service/kubepods:cri-containerd:{ID}", None),
        ("pod", UID, f"/kubepods/burstable/pod{UID}/{ID}", f"/kubepods/burstable/pod{UID}/{ID}"),
        ("pod", UID[:8], f"/k.slice/k-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope", None),
        ("pod", ID[:12], f"/u.slice/user-libpod_pod_{ID}.slice/libpod-{OTHER}.scope/container", None),
        ("pod", ID[:12], f"/libpod_parent/{ID}/libpod-{OTHER}", None),
        ("job", "12", "/slurm/uid_0/job_12/step_0/task_0", "/slurm/uid_0/job_12/step_0/task_0"),
    ],
)  # fmt: skip
def test_groups_by_their_paths(
    tmp_path: Path, version: int, kind: str, name: str, path: str, group: str | None
) -> None:
    """The innermost group that holds all processes is the target: its counts are never late."""
    conmon = f"/m.slice/libpod-conmon-{ID}.scope"
    proc = machine(tmp_path, "/", conmon, "/slurm/uid_0/job_123/step_0", path, version=version)
    found = find_group(kind, name, proc)
    assert found.path == f"{tmp_path}/cgroup{group or path}"
    assert found.version == version
    assert oldest_member(found.path, proc) == 103


@pytest.mark.parametrize("beside", [False, True])
def test_processes_that_begin_and_end_meanwhile_are_in_the_innermost_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """A shell started its first command between two readings: its container got a range, since counts of the scope are late."""
    scope = f"/m.slice/libpod-{ID}.scope"
    proc = machine(tmp_path, f"{scope}/container", *[scope] * beside)
    procs = tmp_path / "cgroup" / scope[1:] / "container/cgroup.procs"
    read = control_group.read_once

    def forking(path: str) -> bytes:
        data = read(path)
        if path == str(procs):
            procs.write_bytes(data + b"%d\n" % (200 + len(data)))
        return data

    monkeypatch.setattr(control_group, "read_once", forking)
    found = find_group("container", ID, proc)
    assert found.path == f"{tmp_path}/cgroup{scope}" + ("" if beside else "/container")


def test_a_job_of_several_steps_is_the_group_around_them(tmp_path: Path) -> None:
    steps = ("/slurm/uid_0/job_12/step_0/task_0", "/slurm/uid_0/job_12/step_1/task_0")
    proc = machine(tmp_path, *steps)
    found = find_group("job", "12", proc)
    assert found.path == f"{tmp_path}/cgroup/slurm/uid_0/job_12"
    assert sorted(members(found.path)) == [100, 101]
    assert oldest_member(found.path, proc) == 101


def test_several_matches_are_listed(tmp_path: Path) -> None:
    proc = machine(tmp_path, f"/docker/{ID}", f"/docker/{OTHER}")
    with pytest.raises(UsageError) as caught:
        find_group("container", "ab12", proc)
    assert f'Cannot attach to container "ab12": 2 cgroups match ({tmp_path}/cgroup/docker/' in str(
        caught.value
    )


def test_nothing_of_the_name_and_memory_that_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = machine(tmp_path, "/system.slice/nginx.service")
    monkeypatch.setattr(target_groups, "systemd_runs", lambda: False)
    with pytest.raises(UsageError, match="systemd does not run here"):
        find_group("unit", "apache", proc)
    monkeypatch.setattr(target_groups, "systemd_runs", lambda: True)
    for kind, name in (("unit", "apache"), ("container", "web"), ("pod", "web"), ("job", "1")):
        with pytest.raises(UsageError, match=f'No process of {kind} "{name}'):
            find_group(kind, name, proc)
    (tmp_path / "proc/100/cgroup").write_text("4:memory:/\n1:name=systemd:/system.slice/nginx.service\n")
    with pytest.raises(UsageError, match=r'memory of unit "nginx\.service" is not counted'):
        find_group("unit", "nginx", proc)


def test_a_path_of_a_directory_or_below_the_mount(tmp_path: Path) -> None:
    proc = machine(tmp_path, "/jobs/7")
    (tmp_path / "cgroup/empty").mkdir()
    for path in ("/jobs/7", "jobs/7", f"{tmp_path}/cgroup/jobs/7"):
        assert find_group("cgroup", path, proc).path == f"{tmp_path}/cgroup/jobs/7"
    for path, message in (
        ("/jobs/8", "There is no cgroup"),
        (f"{tmp_path}/cgroup/empty", "does not count memory"),
        ("../..", "does not count memory"),
    ):
        with pytest.raises(UsageError, match=message):
            find_group("cgroup", path, proc)


def test_names_in_files_of_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/home/u/data")
    texts = {
        f"var/lib/docker/containers/{ID}/config.v2.json": '{"Name": "/web"}',
        f"var/lib/docker/containers/{OTHER}/config.v2.json": "no JSON",
        "var/lib/containers/storage/overlay-containers/containers.json": '[{"id": "p1", "names": ["db", 7]}, 3]',
        "home/u/data/containers/storage/vfs-containers/volatile-containers.json": '[{"id": "p2", "names": ["db"]}]',
        "var/lib/nerdctl/1935db59/names/default/web": "n1",
        "var/log/containers/shop-0_prod_app-k1.log": "",
        f"var/log/pods/prod_shop-0_{UID}/app/0.log": "",
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    of_container, of_pod = target_groups.ids_of_container, target_groups.uids_of_pod
    assert of_container("web", str(tmp_path)) == {ID, "n1"}
    assert of_container("db", str(tmp_path)) == {"p1", "p2"}
    assert of_container("shop-0/app", str(tmp_path)) == of_container("app", str(tmp_path)) == {"k1"}
    assert of_pod("shop-0", str(tmp_path)) == of_pod("prod/shop-0", str(tmp_path)) == {UID}
    assert of_container("other", str(tmp_path)) == of_pod("prod", str(tmp_path)) == set()
