"""IDs of containers and pods by name, from files that engines keep: no engine is asked.

| engine | file |
| --- | --- |
| Docker | /var/lib/docker/containers/ID/config.v2.json; root reads it |
| podman, CRI-O | containers.json of containers/storage, of root or of the user |
| nerdctl | /var/lib/nerdctl/ADDRESS/names/NAMESPACE/NAME |
| Kubernetes | /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log, /var/log/pods/NAMESPACE_POD_UID |
"""

from __future__ import annotations

import contextlib
import json
import os
from glob import glob
from pathlib import Path

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LARGEST = 64 << 20
"""Bytes of a file of an engine that is read."""


def ids_of_container(name: str, root: str = "/") -> set[str]:
    """Return the IDs of containers of this name; several engines may have one. In Kubernetes, also "pod/container"."""
    return {found for found, names in _containers(Path(root)) if name in names}


def ids_of_command(words: Sequence[str], root: str = "/") -> set[str]:
    """Return the IDs of Docker's containers with an image among the words of `docker run`, and the command after it."""
    found = set()
    for path in Path(root).glob("var/lib/docker/containers/*/config.v2.json"):
        content = _json(path)
        config = content.get("Config") if isinstance(content, dict) else None
        image = config.get("Image") if isinstance(config, dict) else None
        if isinstance(config, dict) and isinstance(image, str) and image in words:
            command = list(words[words.index(image) + 1 :])
            if not command or command == config.get("Cmd"):
                found.add(path.parent.name)
    return found


def uids_of_pod(name: str, root: str = "/") -> set[str]:
    """Return the UIDs of pods of this name, or "namespace/name"."""
    uids = set()
    for entry in glob(f"{root}/var/log/pods/*_*_*"):
        namespace, pod, uid = os.path.basename(entry).split("_", 2)
        if name in (pod, f"{namespace}/{pod}"):
            uids.add(uid)
    return uids


def _containers(root: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the ID of each container with its names."""
    for path in root.glob("var/lib/docker/containers/*/config.v2.json"):
        config = _json(path)
        if isinstance(config, dict) and isinstance(config.get("Name"), str):
            yield path.parent.name, (config["Name"].lstrip("/"),)
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    for storage in (root / "var/lib/containers/storage", root / data.lstrip("/") / "containers/storage"):
        for path in storage.glob("*-containers/*containers.json"):
            entries = _json(path)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                    yield entry["id"], tuple(filter(_is_text, entry.get("names") or ()))
    for path in root.glob("var/lib/nerdctl/*/names/*/*"):
        with contextlib.suppress(OSError):
            yield path.read_text("utf-8", "replace").strip(), (path.name,)
    for path in root.glob("var/log/containers/*_*_*-*.log"):
        pod, _, rest = path.name.removesuffix(".log").split("_", 2)
        container, _, found = rest.rpartition("-")
        yield found, (container, f"{pod}/{container}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _json(path: Path) -> object:
    """Return the content of a file; `None` if it is unreadable, too large or no JSON."""
    try:
        return None if path.stat().st_size > _LARGEST else json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
