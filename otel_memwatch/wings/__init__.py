"""Features that use recorded runs, one room each: rules, command and words side by side."""
