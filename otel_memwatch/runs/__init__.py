"""Many runs: which one is meant, and what there is of each."""
