"""The container that a client has started, on made-up hierarchies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_memwatch.monitor.run_cgroup.new_containers import find_new
from otel_memwatch.monitor.run_cgroup.target_groups import ids_of_command
from otel_memwatch.run.container_client import Client, client_of

ID, OTHER, OLD = "a" * 64, "b" * 64, "c" * 64


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("podman run alpine true", "container", None),
        ("/usr/bin/docker --context x run --rm --name web nginx", "container", "web"),
        ("nerdctl run --name=web nginx", "container", "web"),
        ("podman container run -it alpine", "container", None),
        ("kubectl run web --image=nginx", "pod", "web"),
    ],
)
def test_command_lines_of_clients(line: str, kind: str, name: str | None) -> None:
    client = client_of(line.split())
    assert client is not None
    assert (client.kind, client.name) == (kind, name)


@pytest.mark.parametrize("line", ["", "docker ps", "docker", "run docker", "python train.py run"])
def test_other_commands(line: str) -> None:
    assert client_of(line.split()) is None


def machine(folder: Path, *processes: tuple[int, int, int, str]) -> str:
    """A machine with processes (pid, parent, start, group); returns its /proc."""
    point = folder / "cgroup"
    for pid, parent, start, path in processes:
        process, group = folder / "proc" / str(pid), point / path.lstrip("/")
        process.mkdir(parents=True)
        (process / "cgroup").write_text(f"0::{path}\n")
        (process / "stat").write_text(
            f"{pid} (x) S {parent} {' '.join(['0'] * 17)} {start} {' '.join(['0'] * 30)}\n"
        )
        group.mkdir(parents=True, exist_ok=True)
        with (group / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
    (folder / "proc/self").mkdir()
    (folder / "proc/self/mountinfo").write_text(f"30 20 0:25 / {point} rw - cgroup2 cgroup2 rw\n")
    return str(folder / "proc")


CLIENT = (2000, 1, 500, "/user.slice")
PODMAN = Client("podman", ("alpine",))


def test_a_younger_container_of_podman_that_descends_from_us(tmp_path: Path) -> None:
    conmon = (2100, os.getppid(), 501, f"/libpod-conmon-{ID}.scope")
    proc = machine(
        tmp_path, CLIENT, (1500, 1, 400, f"/docker/{OLD}"), (2099, 1, 501, f"/libpod-{OTHER}.scope"), conmon,
        (2101, 2100, 502, f"/libpod-{ID}.scope/container"),
    )  # fmt: skip
    found = find_new(PODMAN, 2000, proc)
    assert found is not None
    assert found[:3] == ("container", ID[:12], f"{tmp_path}/cgroup/libpod-{ID}.scope/container")
    assert found.born


@pytest.mark.parametrize("begun", [True, False])
def test_the_container_that_holds_a_pod_s_namespaces_is_not_the_client_s(tmp_path: Path, begun: bool) -> None:
    """`podman run --pod new:web` starts it first. The conmon beside it has its name."""
    processes = [
        CLIENT,
        (2100, os.getppid(), 501, "/user.slice"),
        (2101, 2100, 502, f"/libpod_pod_{OLD}.slice/libpod-{OTHER}.scope"),
        (2110, os.getppid(), 503, "/user.slice"),
        (2111, 2110, 504, f"/libpod_pod_{OLD}.slice/libpod-{ID}.scope"),
    ]
    proc = machine(tmp_path, *(processes if begun else processes[:3]))
    (tmp_path / "proc/2100/cmdline").write_text(f"conmon\0-c\0{OTHER}\0-n\0{OLD[:12]}-infra\0")
    found = find_new(PODMAN, 2000, proc)
    assert (None if found is None else found.name) == (ID[:12] if begun else None)


@pytest.mark.parametrize("around", [f"/libpod_parent/{OLD}", f"/docker/{OLD}"])
def test_a_container_of_podman_in_an_older_pod_or_container(tmp_path: Path, around: str) -> None:
    proc = machine(
        tmp_path, CLIENT, (1500, 1, 400, f"{around}/libpod-{OTHER}"), (2100, os.getppid(), 501, "/user.slice"),
        (2101, 2100, 502, f"{around}/libpod-{ID}"),
    )  # fmt: skip
    found = find_new(PODMAN, 2000, proc)
    assert found is not None
    assert found.path == f"{tmp_path}/cgroup{around}/libpod-{ID}"


def test_the_group_of_a_pod_with_podman_s_own_processes_is_no_container(tmp_path: Path) -> None:
    """Without systemd, podman puts the processes beside the containers there."""
    proc = machine(tmp_path, CLIENT, (2100, os.getppid(), 501, f"/libpod_parent/{OLD}"))
    (tmp_path / "proc/2100/comm").write_text("conmon\n")
    assert find_new(PODMAN, 2000, proc) is None


def test_a_container_of_docker_by_the_file_of_its_id(tmp_path: Path) -> None:
    """Others start containers at the same time: without a sign, none is taken for the client's."""
    proc = machine(tmp_path, CLIENT, (2100, 1, 501, f"/docker/{OTHER}"), (2101, 1, 501, f"/docker/{ID}"))
    client = Client("docker", ("--cidfile", str(tmp_path / "id"), "alpine"))
    assert find_new(client, 2000, proc) is None
    (tmp_path / "id").write_text(ID)
    found = find_new(client, 2000, proc)
    assert found is not None
    assert found.path.endswith(ID)
    assert find_new(Client("docker", ("alpine",)), 2000, proc) is None


def test_nothing_yet(tmp_path: Path) -> None:
    proc = machine(
        tmp_path, CLIENT, (1500, os.getppid(), 400, f"/docker/{OLD}"), (2100, 1, 501, "/user.slice")
    )
    assert find_new(PODMAN, 2000, proc) is None
    assert find_new(Client("kubectl", ("web",)), 2000, proc) is None


def test_a_container_of_docker_by_its_command(tmp_path: Path) -> None:
    folder = tmp_path / f"var/lib/docker/containers/{ID}"
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text('{"Config": {"Image": "alpine", "Cmd": ["echo", "a"]}}')
    (folder.with_name(OTHER)).mkdir()
    (folder.with_name(OTHER) / "config.v2.json").write_text('{"Config": 3}')
    for line, ids in (
        ("--rm alpine echo a", {ID}),
        ("alpine", {ID}),
        ("alpine echo b", set()),
        ("nginx", set()),
    ):
        assert ids_of_command(line.split(), str(tmp_path)) == ids
