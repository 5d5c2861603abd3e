"""Code that runs in the watched program. It imports nothing of the monitor."""
