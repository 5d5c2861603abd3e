"""200 children, one after the other, live for a millisecond each."""

import os

for _ in range(200):
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
