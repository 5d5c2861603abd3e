"""How often the gate is wrong: comparisons of identical programs, and of programs that grew by a known share."""
