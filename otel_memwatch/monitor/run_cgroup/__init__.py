"""The run's own cgroup: made here, or requested from systemd as a scope."""
