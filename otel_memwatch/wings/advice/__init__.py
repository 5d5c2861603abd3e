"""Advice on memory, CPU and time to request, from earlier runs."""
