"""A run in progress, shown in a terminal from its record alone."""
