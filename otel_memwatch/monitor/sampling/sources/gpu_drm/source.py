"""The source: every card with an open driver once a second."""

from __future__ import annotations

import time

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Attributes, Column, Value
from otel_memwatch.monitor.sampling.sources.gpu_drm.cards import Card, CardFigure, figures, find_cards
from otel_memwatch.monitor.sampling.sources.gpu_drm.clients import Clients
from otel_memwatch.runtime.polling import Pace, Poller
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.monitor.sampling.sources import Context

PERIOD = 1.0

SHARE = 0.01
"""Part of the wall time that reading may take."""

_TREE = (
    catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_GPU_MEMORY_SYSTEM,
    catalog.MEMWATCH_PROCESS_GPU_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_GPU_TIME,
)
_TYPED = (catalog.HW_POWER, catalog.HW_ENERGY)


class GpuDrm:
    """GPUs with open drivers (AMD, Intel and others).

    The files are read in a thread of its own: a driver that resets its card keeps readers waiting.

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
        self._cards: list[tuple[Card, list[CardFigure]]] = [
            (card, figures(card)) for card in find_cards(context.sys)
        ]
        if not self._cards:
            hint = "AMD and Intel GPUs have one; NVIDIA's driver is read by gpu_nvidia"
            raise Unavailable("No GPU with an open driver is here", hint)
        self._clients = Clients(context.proc, [card.id for card, _ in self._cards])
        self._pace = Pace(period, early=period / 10, share=SHARE)
        self.columns: tuple[Column, ...] = tuple(
            Column(metric, _attributes(card, metric), PERIOD)
            for card, known in self._cards
            for metric in (*(figure.metric for figure in known), *_TREE)
        )
        self._poller = Poller("The GPU's kernel driver", self._poll, period, "dmesg says more")
        self._poller.start()

    def read(self, now: float) -> Sequence[Value]:
        """What was read since the last call; no value where nothing was. Raises `Unavailable` while a driver hangs."""
        self._pids = tuple(self._context.pids())
        return self._poller.new_values(now) or (None,) * len(self.columns)

    def close(self) -> None:
        """Ends the thread."""
        self._poller.close()

    def info(self) -> list[dict[str, Any]]:
        """Every card, in words that JSON can hold, for the record and `doctor`."""
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
        holdings = self._clients.look(self._pids, now)
        values: list[Value] = []
        for card, known in self._cards:
            awake = card.awake()
            values += [figure.read() if awake else None for figure in known]
            holding = holdings and holdings[card.id]
            if holding:
                values += [holding.device_bytes, holding.system_bytes, holding.largest, holding.seconds]
            else:
                values += [None] * len(_TREE)
        self._pace.spent(now, time.monotonic() - now)
        return values


def _attributes(card: Card, metric: str) -> Attributes:
    typed = (("hw.type", "gpu"),) if metric in _TYPED else ()
    return (("hw.id", card.id), ("hw.name", card.name), *typed)
