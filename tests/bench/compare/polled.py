"""Looks at a command as a Slurm node does for `sacct` and `seff` at its defaults: FILE SECONDS COMMAND ...

The gatherer of accounting (JobAcctGatherType=jobacct_gather/linux) sums the resident sizes of the processes of a task when it starts and
every JobAcctGatherFrequency seconds, 30 where nothing is said; MaxRSS is the largest sum. No Slurm is needed for that.
"""

import subprocess
import sys

import psutil


def resident(pid: int) -> int:
    """Bytes of a process and its descendants, added up."""
    try:
        root = psutil.Process(pid)
        return sum(process.memory_info().rss for process in (root, *root.children(recursive=True)))
    except psutil.Error:
        return 0


if __name__ == "__main__":
    command = subprocess.Popen(sys.argv[3:])
    largest, looks = 0, 0
    while True:
        largest, looks = max(largest, resident(command.pid)), looks + 1
        with open(sys.argv[1], "w") as file:
            file.write(f"{largest} {looks}\n")
        try:
            code = command.wait(float(sys.argv[2]))
            break
        except subprocess.TimeoutExpired:
            continue
    sys.exit(code)
