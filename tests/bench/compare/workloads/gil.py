"""One call into C that holds the interpreter for a second while memory rises by some 200 MiB and falls again."""

import time

numbers = list(range(2_000_000, 0, -1))
time.sleep(0.3)
sorted(numbers, key=str)
time.sleep(0.3)
