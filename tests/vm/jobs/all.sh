#!/bin/sh
# Runs in the machine, as root, once it is up: all jobs, with their results on the second disk.
mkdir -p /results
mount /dev/vdb /results
/usr/bin/python3 /opt/jobs/jobs.py /results >/results/jobs.log 2>&1 && touch /results/complete
umount /results
