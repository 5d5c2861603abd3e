"""Command lines of clients that start a container: `docker run`, `podman run`, `nerdctl run`, `kubectl run`."""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

CLIENTS = frozenset({"docker", "podman", "nerdctl", "kubectl"})
"""Commands that may start a container outside their process tree."""
_FIRST_WORDS = 8
"""Words among which the subcommand "run" stands."""


class Client(NamedTuple):
    """The client of a container engine, as a command line names it."""

    engine: str
    words: tuple[str, ...]
    """Words after "run"."""

    @property
    def kind(self) -> str:
        """The kind of its target: "container" or "pod"."""
        return "pod" if self.engine == "kubectl" else "container"

    @property
    def name(self) -> str | None:
        """Name of the container or pod; `None`: the engine chooses one."""
        if self.engine == "kubectl":
            return next((word for word in self.words if not word.startswith("-")), None)
        return self.option("--name")

    def option(self, flag: str) -> str | None:
        """Return the value of an option, as "FLAG VALUE" or "FLAG=VALUE"; `None`: not given."""
        for place, word in enumerate(self.words):
            if word == flag:
                return next(iter(self.words[place + 1 :]), None)
            if word.startswith(f"{flag}="):
                return word[len(flag) + 1 :]
        return None


def client_of(argv: Sequence[str]) -> Client | None:
    """Return the client that a command line is; `None`: none, or not one that starts a container."""
    program = os.path.basename(argv[0]) if argv else ""
    if program not in CLIENTS or "run" not in argv[1:_FIRST_WORDS]:
        return None
    return Client(program, tuple(argv[argv.index("run") + 1 :]))
