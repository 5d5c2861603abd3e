"""The run index: many runs as one table, found, filtered, listed, imported and removed."""
