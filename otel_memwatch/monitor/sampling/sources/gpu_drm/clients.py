"""Clients of GPUs among the tree's processes, found by their open device files."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.polling import Pace
from otel_memwatch.runtime.procfs.drm import DrmClient, parse_drm_fdinfo
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LISTING = 5.0
"""Seconds between two searches for newly opened device files of a known process."""

_SHARE = 0.005
"""Share of wall time that this search may take: a process can have thousands of open files."""

_DEVICES = ("/dev/dri/", "/dev/accel/", "/dev/kfd")


class CardMemory(NamedTuple):
    """The tree's part of one card."""

    device_bytes: int
    system_bytes: int
    largest: int
    """Bytes of the card's memory that the largest holder among the processes has."""
    seconds: float
    """Time for which engines worked for the tree since its first reading, including closed clients."""


class Clients:
    """Follower of the tree's clients.

    Args:
        proc: mount point of /proc.
        cards: ids of the cards to follow.

    """

    def __init__(self, proc: Path, cards: Iterable[str]) -> None:
        self._proc = proc
        self._cards = list(cards)
        self._files: dict[int, list[str]] = {}
        self._listing = Pace(LISTING, early=LISTING / 10, share=_SHARE)
        self._engines: dict[tuple[str, int, str], tuple[int, int, float]] = {}
        self._seconds = dict.fromkeys(self._cards, 0.0)

    def read(self, pids: Iterable[int], now: float) -> dict[str, CardMemory] | None:
        """Return the holdings of the processes by card; `None` if all of them deny access.

        `now` is monotonic seconds. A client that several files or processes share counts once.
        """
        living = list(pids)
        all_due = self._listing.due(now)
        known = {pid: files for pid, files in self._files.items() if pid in set(living)}
        for pid in living:
            if all_due or pid not in known:
                files = _device_files(self._proc, pid)
                if files is None:
                    known.pop(pid, None)
                else:
                    known[pid] = files
        self._files = known
        if all_due:
            self._listing.spent(now, 0.0)
        if living and not any(pid in self._files for pid in living):
            return None
        clients: dict[tuple[str, int], DrmClient] = {}
        by_process: dict[tuple[str, int], int] = {}
        for pid in living:
            mine = {}
            for path in self._files.get(pid, ()):
                client = _read(path)
                card = client and self._card_of(client)
                if client is not None and card is not None:
                    mine[card, client.client] = client
            for key, client in mine.items():
                by_process[key[0], pid] = by_process.get((key[0], pid), 0) + client.device_bytes
            clients.update(mine)
        self._count_engines(clients, now)
        return {card: self._holding(card, clients, by_process) for card in self._cards}

    def _holding(
        self, card: str, clients: dict[tuple[str, int], DrmClient], by_process: dict[tuple[str, int], int]
    ) -> CardMemory:
        of_card = [client for (of, _), client in clients.items() if of == card]
        return CardMemory(
            sum(client.device_bytes for client in of_card),
            sum(client.system_bytes for client in of_card),
            max((held for (of, _), held in by_process.items() if of == card), default=0),
            self._seconds[card],
        )

    def _card_of(self, client: DrmClient) -> str | None:
        """Return the card of a client. A card on no bus has no name; on every known board it is the only one."""
        if client.pci is None:
            return self._cards[0] if len(self._cards) == 1 else None
        return client.pci.lower() if client.pci.lower() in self._seconds else None

    def _count_engines(self, clients: dict[tuple[str, int], DrmClient], now: float) -> None:
        """Add the work of engines since the last reading; if the driver counts time, a new client adds its whole life."""
        seen = {}
        for (card, number), client in clients.items():
            for engine, worked in client.engines.items():
                key = card, number, engine
                before = self._engines.get(key, (0, 0, now))
                self._seconds[card] += max(0, worked - before[0]) / 1e9
                seen[key] = worked, 0, now
            for engine, (own, total) in client.cycles.items():
                key = card, number, engine
                before = self._engines.get(key, (own, total, now))
                if total > before[1]:
                    part = max(0, own - before[0]) / (total - before[1])
                    self._seconds[card] += part * (now - before[2])
                seen[key] = own, total, now
        self._engines = seen


def _device_files(proc: Path, pid: int) -> list[str] | None:
    """Return the paths in fdinfo of open GPU device files; `None` if the process denies access."""
    directory = f"{proc}/{pid}"
    try:
        numbers = os.listdir(f"{directory}/fd")
    except OSError:
        return None
    found = []
    for number in numbers:
        try:
            target = os.readlink(f"{directory}/fd/{number}")
        except OSError:
            continue  # closed since
        if target.startswith(_DEVICES):
            found.append(f"{directory}/fdinfo/{number}")
    return found


def _read(path: str) -> DrmClient | None:
    try:
        return parse_drm_fdinfo(read_once(path).decode(errors="replace"))
    except OSError:
        return None  # closed since, or its process has ended
