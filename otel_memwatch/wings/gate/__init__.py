"""Budgets, baselines and comparisons: verdicts on runs, for people and CI."""
