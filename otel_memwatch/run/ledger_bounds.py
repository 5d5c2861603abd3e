"""What page faults tell of the memory that a tree needed, collected tick by tick; the rules are those of `certainty`."""

from __future__ import annotations

from otel_memwatch.run.maximum import Maximum
from otel_memwatch.run.tree_bounds import UNCAPPED, SumOverTime, WindowBounds
from otel_memwatch.runtime.kernel import sum_known
from otel_memwatch.truth.estimates import share_of_estimate
from otel_memwatch.truth.faults import gained


class LedgerBounds:
    """The bounds between ticks, from the columns `memwatch.tree.memory.needed.*`.

    What processes gained that nobody saw afterwards is told by whoever waited for them, and reading a tick takes a moment: so what is
    told at the tick at which a window ends is added to the window, and what is told at the next one may be.

        tick 1 ------------ tick 2 ------------ tick 3
              |<- bound of tick 2 ->|
                 page faults told at tick 2 count in it, and at tick 3 of what had ended before tick 2 was over

    Args:
        page: bytes of a base page.
        carried: whether the bound of a tick is not below that of the one before, wherever what is told at it may have been
            before that: else it is taken to have been always.

    Attributes:
        low: the most that was certainly there at one moment.
        estimate: the most likely.

    """

    def __init__(self, page: int, *, carried: bool = False) -> None:
        self._page = page
        self._carried = carried
        self.low, self.estimate = Maximum(), Maximum()
        self._share: float | None = None
        """What the shares of all pages are of the guess; `None`: they have not been read yet."""
        self._unknown = WindowBounds()
        """Windows of which page faults tell nothing; in place of the others, ones of nothing."""
        self._most = 0
        """The largest bound of the others."""
        self._open: tuple[float, int | None, int | None] | None = None
        self.known = False
        """Whether there is any bound."""

    def add_tick(self, time: float, high: int | None, faults: int | None) -> None:
        """Takes a tick in.

        Args:
            time: monotonic seconds.
            high: bytes that the processes which were seen never exceeded since the tick before; `None`: not known.
            faults: page faults of others, and of these after they were last seen; `None`: not known.

        """
        if self._open is not None:
            before, bound, first = self._open
            # Where nobody was told of what had ended, it may have been in either window.
            told = self._bound(bound, first, 0 if self._carried and faults is not None else faults)
            self._unknown.add_tick(before, None if told is None else 0, 0)
            self._most = max(self._most, told or 0)
        self._open = time, high, faults
        self.known = self.known or high is not None

    def add_guess(self, time: float, guess: int | None, shares: int | None) -> None:
        """Takes in what was needed most likely.

        How much of what forked processes gained they have given back since is not to be seen in /proc, but for the
        moments at which the shares of all pages are read: by how much the guess is too high then is taken off the others.

        Args:
            time: monotonic seconds.
            guess: bytes, as if nothing had been given back.
            shares: bytes of the shares of all pages; `None`: they were not read at this tick.

        """
        self.low.add(time, shares)
        if guess is None:
            return
        if shares is not None and guess > 0:
            share = share_of_estimate(shares, guess)
            if self._share is None and self.estimate.value is not None:
                self.estimate.value = int(self.estimate.value * share)
            self._share = share
        self.estimate.add(time, int(guess * (1.0 if self._share is None else self._share)))

    def _bound(self, high: int | None, *faults: int | None) -> int | None:
        told = sum_known(faults)
        return None if high is None or told is None else high + gained(told, page=self._page)

    def most(self, sums: SumOverTime | None, *, over: bool) -> int | None:
        """Bytes that the tree never needed more than; `None`: not known. Asking changes nothing.

        Where page faults tell nothing of a window, the processes that lived in it do; elsewhere they bound nothing, since
        what nobody maps (a file in /dev/shm) is in none of them.

        Args:
            sums: the bounds of all processes over time; `None`: not all have one.
            over: whether the last tick was taken after the target's end, or found no process alive: what a daemon that it
                leaves behind has later is not the run's.

        """
        if self._open is None or not self.known:
            return None
        time, high, faults = self._open
        told = self._bound(high if over else None, faults)
        windows = self._unknown.copy()
        windows.add_tick(time, None if told is None else 0, 0)

        def by_processes(start: float, end: float) -> int:
            if over and start > time:
                return 0
            return UNCAPPED if sums is None else sums.largest(start, end)

        most = max(windows.largest(0, by_processes), self._most, told or 0)
        return None if most >= UNCAPPED else int(most)
