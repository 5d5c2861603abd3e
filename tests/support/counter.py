"""Reports each signal that it gets: one line "number sender" on stdout, after a first line "ready PID".

Real-time signals are counted one by one. Ends, with exit code 0, when stdin has ended and no signal has come for
half a second.
"""

from __future__ import annotations

import os
import select
import signal

EVERY = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, EVERY)
    os.write(1, b"ready %d\n" % os.getpid())
    while True:
        info = signal.sigtimedwait(EVERY, 0.5)
        if info is not None:
            os.write(1, b"%d %d\n" % (info.si_signo, info.si_pid))
        elif select.select([0], [], [], 0)[0] and not os.read(0, 4096):
            return


main()
