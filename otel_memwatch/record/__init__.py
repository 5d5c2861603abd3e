"""The run directory: names and format of its files, writers, followers and readers."""
