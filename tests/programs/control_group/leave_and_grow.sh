# Enters the control group of the first argument, and becomes a program that holds 300 MiB for a second.
echo 0 > "$1/cgroup.procs"
exec "$2" -S -c 'import time; held = bytearray(300 << 20); time.sleep(1)'
