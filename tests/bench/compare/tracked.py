"""Runs a command under `resource_tracker.ProcessTracker`, which has no command-line program: FILE INTERVAL COMMAND ..."""

import subprocess
import sys

from resource_tracker import ProcessTracker

if __name__ == "__main__":
    command = subprocess.Popen(sys.argv[3:])
    tracker = ProcessTracker(pid=command.pid, interval=float(sys.argv[2]), output_file=sys.argv[1])
    sys.exit(command.wait())
