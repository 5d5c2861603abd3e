"""Many runs: which there are, and which one is meant."""
