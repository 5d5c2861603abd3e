"""`run_command`: run a command with limits."""

from otel_memwatch import run_command

hog = "kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 20))"
run = run_command(
    ["python3", "-c", hog],
    limit="100MiB",
    limit_fallback="rlimit",
    warn="85%",
    on_warning=print,
    timeout="1min",
)
print(run.verdict, run.ending.reason, run.peak.high)
