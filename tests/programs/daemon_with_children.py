"""Starts a daemon that waits for a child of so many MiB and outlives this program; prints the daemon's pid."""

import os
import subprocess
import sys
import time


def daemon(mib: int, done: int) -> None:
    """Holds on to nothing of the program that started it."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    time.sleep(0.5)  # so the first tick is over
    subprocess.run([sys.executable, "-S", "-c", f"b'x' * ({mib} << 20)"], check=True)
    os.write(done, str(os.getpid()).encode())
    time.sleep(60)


def main() -> None:
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            daemon(int(sys.argv[1]), writing)
        finally:
            os._exit(0)
    os.close(writing)
    print(os.read(reading, 20).decode())


main()
