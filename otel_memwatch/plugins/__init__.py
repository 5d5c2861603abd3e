"""Plugins that other programs load through entry points. Nothing in this package imports them."""
