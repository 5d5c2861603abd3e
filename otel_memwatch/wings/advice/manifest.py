"""Write advice into a Kubernetes manifest and keep its comments, order and quotes.

Two doubts keep the file as it is until the user confirms:

- The container does not look like the job: its name, image and command have no word in common with the job. If it has no
  command, naming it is enough.
- Memory would fall, and the advice has no odds: it rests on one run, on lower bounds or on a guess.
"""

from __future__ import annotations

import io
import itertools
import os
import re

from otel_memwatch.errors import RunError, Unavailable, UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.user_files import read_file, replace_file
from otel_memwatch.text import clean
from otel_memwatch.wings.advice.targets import kubernetes_resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.wings.advice.recommendation import Advice


def patch(
    path: str, advice: Advice, container: str | None, *, write: bool, confirmed: bool = False
) -> list[str]:
    """Set the requests and limits of a container in a YAML file; return the changes as lines.

    Example of a line: "limits.memory of train: 1Gi -> 520Mi".

    Args:
        path: of the file, which may hold several documents.
        advice: with known memory.
        container: its name; `None`: there is only one.
        write: whether to write the file. It is replaced atomically, and only if something changes.
        confirmed: write in spite of doubts.

    Raises:
        Unavailable: ruamel.yaml is not installed.
        RunError: the file cannot be read or written.
        UsageError: the file holds no container, or several and none is named, or doubts are not confirmed.

    """
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError:
        raise Unavailable("ruamel.yaml is not installed.", "pip install 'otel-memwatch[yaml]'") from None
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 16  # no line is broken that was not
    try:
        text = read_file(path).decode()
        documents = list(yaml.load_all(text))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    except RecursionError:
        raise RunError(f"{path} is not a manifest: it is nested too deeply.") from None
    _keep_indentation(yaml, text)
    chosen = _chosen(path, documents, container)
    doubts = [] if confirmed else _doubts(chosen, advice, named=container is not None)
    changes = _set(chosen, kubernetes_resources(advice))
    if doubts and changes:
        if write:
            raise UsageError(
                f"{path} was not changed: {'; '.join(doubts)}.", "check with --dry-run; --yes writes it"
            )
        return [*changes, f"not written without --yes: {'; '.join(doubts)}"]
    if write and changes:
        out = io.StringIO()
        yaml.dump_all(documents, out)
        try:
            replace_file(os.path.realpath(path), out.getvalue().encode())
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}.") from None
    return changes or [f"{path} asks for that already"]


def _keep_indentation(yaml: Any, text: str) -> None:
    """Write lists in the style of the file: with the dash below the key, or further in."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for before, line in itertools.pairwise(lines):
        if before.rstrip().endswith(":") and line.lstrip().startswith("- "):
            offset = (len(line) - len(line.lstrip())) - (
                len(before) - len(before.lstrip().removeprefix("- "))
            )
            offset = max(0, min(offset, 8))
            yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
            return


def _chosen(path: str, documents: list[Any], container: str | None) -> Any:
    """Return the only container, or the one of this name. Raises `UsageError`."""
    found = [one for document in documents for one in _containers(document)]
    named = [one for one in found if container is None or one.get("name") == container]
    if not found:
        raise UsageError(
            f"{path} holds no container.", "a Kubernetes manifest of a Pod, Job, Deployment ... is wanted"
        )
    names = ", ".join(str(one.get("name")) for one in found)
    if not named:
        raise UsageError(f"{path} holds no container {container!r}.", f"there are {names}")
    if len(named) > 1:
        raise UsageError(
            f"{path} holds {len(named)} containers that may be meant: {names}.", "name one with --container"
        )
    return named[0]


def _containers(node: Any) -> Iterator[Any]:
    """Yield the containers in a document at any depth: mappings with an image in a list called "containers"."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "containers" and isinstance(value, list):
                yield from (one for one in value if isinstance(one, dict) and "image" in one)
            else:
                yield from _containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from _containers(value)


_GENERIC = frozenset(
    ("app", "bash", "bin", "container", "env", "job", "latest", "local", "main", "memwatch", "opt", "otel", "py", "python", "python3",
     "run", "sh", "src", "usr", "wrap")
)  # fmt: skip
"""Words that say nothing about a job."""


def _doubts(container: Any, advice: Advice, *, named: bool) -> list[str]:
    """Return reasons not to write this advice into this container."""
    name, doubts = container.get("name"), []
    command = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    described = _words(" ".join([str(name), str(container.get("image")), *command]))
    if not described & _words(advice.job) and (command or not named):
        doubts.append(f"container {name} does not look like the job {clean(advice.job)}")
    resources = container.get("resources")
    sections = [resources.get(kind) for kind in ("limits", "requests")] if isinstance(resources, dict) else []
    found = [str(one["memory"]) for one in sections if isinstance(one, dict) and "memory" in one]
    memory = max(found, key=lambda text: quantity(text) or 0, default=None)  # the largest that it has now
    lowered = memory is not None and advice.memory is not None and advice.memory < (quantity(memory) or 0)
    if lowered and (advice.odds is None or advice.guess):
        doubts.append(f"memory of {name} would fall from {memory}, and the advice is weak ({advice.basis})")
    return doubts


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", text.lower()) if len(word) > 1} - _GENERIC


_SUFFIXES: dict[str, float] = {"": 1, "m": 1e-3} | {
    f"{letter}{binary}": (1024 if binary else 1000) ** power
    for power, letter in enumerate("KMGTPE", 1)
    for binary in ("", "i")
} | {"k": 1000}  # fmt: skip


def quantity(text: str) -> float | None:
    """Parse a quantity of Kubernetes, such as "4Gi" or "512M"; `None` for any other text."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _SUFFIXES:
        return None
    try:
        return float(match[1]) * _SUFFIXES[match[2]]
    except ValueError:
        return None


def _set(container: Any, resources: dict[str, dict[str, str]]) -> list[str]:
    """Set the resources of a container, and return the changes as lines."""
    changes = []
    for kind, values in resources.items():
        for name, value in values.items():
            section = container.setdefault("resources", {})
            if not isinstance(section, dict) or not isinstance(section.setdefault(kind, {}), dict):
                raise UsageError(f"resources of {container.get('name')} are not a mapping.")
            old = section[kind].get(name)
            if str(old) != value:
                section[kind][name] = value
                changes.append(
                    f"{kind}.{name} of {container.get('name')}: {'none' if old is None else old} -> {value}"
                )
    return changes
