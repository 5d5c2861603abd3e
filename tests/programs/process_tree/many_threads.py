"""200 threads live for 0.8 s while a child runs."""

import subprocess
import threading
import time

for _ in range(200):
    threading.Thread(target=time.sleep, args=(0.8,)).start()
subprocess.run(["/bin/sleep", "0.5"])
