"""What every test needs of the process that runs them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Signals as a terminal's foreground job has them, also in the background of a script, under nohup or a CI runner.

    A signal that is ignored when a program starts stays ignored in all that it starts, and a shell cannot trap it:
    the programs under test would not be the ones that the tests describe.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGTERM,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
