"""The composition root: the only place that knows every part of a recording, and starts and ends them in order."""
