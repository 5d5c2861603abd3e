"""Everything that runs in the watched program, and nothing else. Nothing of the monitor is imported here."""
