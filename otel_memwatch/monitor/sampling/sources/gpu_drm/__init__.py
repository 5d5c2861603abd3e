"""GPUs of AMD, Intel and others through the kernel's open drivers: no library, no privilege, also in containers.

The kernel reports current memory of each client (/proc/PID/fdinfo) and keeps no peak, so peaks are sampled. Every card
is read once a second: `cards` has the figures of whole cards, `clients` the tree's part.
"""

from __future__ import annotations

import time
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.model import Column
from otel_memwatch.monitor.sampling.sources.gpu_drm.cards import Card, figures, find_cards
from otel_memwatch.monitor.sampling.sources.gpu_drm.clients import CardMemory, Clients
from otel_memwatch.runtime.gpu_presence import no_open_driver
from otel_memwatch.runtime.polling import Pace, Poller
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Attributes, Value
    from otel_memwatch.monitor.sampling.sources import Context, Row

PERIOD = 1.0

SHARE = 0.01
"""Share of wall time that reading may take."""

_TREE: tuple[Row[CardMemory], ...] = (
    (catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE, (), lambda holding: holding.device_bytes),
    (catalog.MEMWATCH_TREE_GPU_MEMORY_SYSTEM, (), lambda holding: holding.system_bytes),
    (catalog.MEMWATCH_PROCESS_GPU_MEMORY_USAGE, (), lambda holding: holding.largest),
    (catalog.MEMWATCH_TREE_GPU_TIME, (), lambda holding: holding.seconds),
)
"""Columns of the tree's part of a card; they follow the figures of the card."""
_TYPED = (catalog.HW_POWER, catalog.HW_ENERGY)
"""Metrics with the attribute `hw.type`."""


class GpuDrm:
    """GPUs with open drivers (AMD, Intel and others).

    A separate thread reads the files: a driver that resets its card blocks readers.

    Args:
        context: the context of the run.
        period: seconds between readings.

    Raises:
        Unavailable: no such GPU here.

    """

    name = "gpu_drm"

    def __init__(self, context: Context, period: float = PERIOD) -> None:
        self._context = context
        self._pids = tuple(context.pids())
        self._cards = [(card, figures(card)) for card in find_cards(Path(context.sys))]
        if not self._cards:
            raise no_open_driver()
        self._clients = Clients(Path(context.proc), [card.id for card, _ in self._cards])
        self._pace = Pace(period, early=period / 10, share=SHARE)
        self.columns: tuple[Column, ...] = tuple(
            Column(metric, _attributes(card, metric), PERIOD)
            for card, known in self._cards
            for metric in (*(figure.metric for figure in known), *(metric for metric, _, _ in _TREE))
        )
        self.poller = Poller("The GPU's kernel driver", self._poll, period, "see dmesg")
        """Its CPU time counts as that of the source."""
        self.poller.start()

    def read(self, now: float) -> Sequence[Value]:
        """Return the readings since the last call, or only `None`. Raises `Unavailable` while a driver hangs."""
        self._pids = tuple(self._context.pids())
        return self.poller.new_values(now) or (None,) * len(self.columns)

    def close(self) -> None:
        """End the thread."""
        self.poller.close()

    def info(self) -> list[dict[str, Any]]:
        """Return a description of every card as JSON values, for the record and `doctor`."""
        return [
            {
                "id": card.id,
                "name": card.name,
                "pci": card.id,
                "vendor": card.vendor,
                "driver": card.driver,
                "parent": None,
                "visible": None,
                "recorded": True,
                "processes": "by process",
            }
            for card, _ in self._cards
        ]

    def _poll(self) -> Sequence[Value]:
        now = time.monotonic()
        if not self._pace.due(now):
            return (None,) * len(self.columns)
        holdings = self._clients.read(self._pids, now)
        values: list[Value] = []
        for card, known in self._cards:
            awake = card.awake()
            values += [figure.read() if awake else None for figure in known]
            holding = None if holdings is None else holdings[card.id]
            values += [None if holding is None else get(holding) for _, _, get in _TREE]
        self._pace.spent(now, time.monotonic() - now)
        return values


def _attributes(card: Card, metric: str) -> Attributes:
    typed = (("hw.type", "gpu"),) if metric in _TYPED else ()
    return (("hw.id", card.id), ("hw.name", card.name), *typed)


open_source = GpuDrm
"""Raises `Unavailable` without a GPU that has an open driver."""
