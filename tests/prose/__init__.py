"""Lint for prose: banned words, long sentences, and the rate of a few words, in code, documents and help."""
