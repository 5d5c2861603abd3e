"""Rules that decide how certain a figure is: pure functions on numbers, no files, no state."""
