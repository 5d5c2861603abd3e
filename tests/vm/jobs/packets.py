"""Packets that the kernel handles on many processors, and charges ahead there to the cgroup of their receiver.

packets.py servers      a server on each processor, for a minute, which sends 6000 bytes to each client
packets.py client FILE  a client of all, which reads nothing; FILE gets the bytes that its cgroup needed
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

PORT = 20000


def serve(cpu: int) -> None:
    """A server for a minute."""
    os.sched_setaffinity(0, {cpu})
    listening = socket.create_server(("127.0.0.1", PORT + cpu))
    listening.settimeout(60)
    while True:
        client = listening.accept()[0]
        client.sendall(b"x" * 6000)
        time.sleep(20)  # then the connection ends


def connected(cpu: int) -> socket.socket:
    """A connection, once the server listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT + cpu))
        except ConnectionRefusedError:
            time.sleep(0.5)


def needed() -> int:
    """What memory.stat has, once cpu.stat has been read: without what is charged ahead."""
    group = Path("/sys/fs/cgroup" + Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2])
    (group / "cpu.stat").read_text()
    counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return sum(int(counts[name]) for name in ("anon", "file", "kernel", "sock"))


def main() -> None:
    """One of the two."""
    if sys.argv[1] == "servers":
        for cpu in range(os.cpu_count() or 1):
            if os.fork() == 0:
                serve(cpu)
    else:
        clients = [connected(cpu) for cpu in range(os.cpu_count() or 1)]
        time.sleep(0.5)
        Path(sys.argv[2]).write_text(json.dumps({"truth": needed(), "clients": len(clients)}))


main()
