"""A process executes another program."""

import os
import time

time.sleep(0.4)
os.execv("/bin/sleep", ["sleep", "0.4"])
