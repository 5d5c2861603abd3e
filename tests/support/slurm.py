"""A Slurm cluster of this machine alone, of Debian's packages. Its daemon runs as root only."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SLURM = """\
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort=16827
SlurmdPort=16828
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=p Nodes={host} Default=YES State=UP
"""


@contextlib.contextmanager
def controller(place: Path) -> Iterator[dict[str, str]]:
    """A cluster of this machine alone; the environment in which its clients find it."""
    (place / "state").mkdir()
    host = platform.node().partition(".")[0]
    config = place / "slurm.conf"
    config.write_text(
        SLURM.format(host=host, user=os.environ.get("USER") or "root", place=place, cpus=os.cpu_count())
    )
    variables = {**os.environ, "SLURM_CONF": str(config)}
    processes = []
    try:
        for daemon in ("slurmctld", "slurmd"):
            words = [daemon, "-D", "-f", str(config)]
            processes.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until = time.monotonic() + 100
        trivial = ["sbatch", "--test-only", "--mem=1M", "--wrap", "true"]
        while subprocess.run(trivial, env=variables, capture_output=True, check=False).returncode:
            assert time.monotonic() < until, "the node does not come up"
            time.sleep(0.2)
        yield variables
    finally:
        for process in processes:
            process.terminate()
            process.wait()
