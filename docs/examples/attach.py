"""`attach`: record another process."""

import subprocess

from otel_memwatch import attach

child = subprocess.Popen(["sleep", "60"])
run = attach(child.pid, "runs/sleep", quiet=True)
child.terminate()
child.wait()
run.stop()
print(run.state, run.seconds)
