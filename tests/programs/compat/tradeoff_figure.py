"""Draws a trade-off, and looks whether a setting of matplotlib has changed."""

import sys

import matplotlib as mpl

from otel_memwatch.compat.nncf.tradeoff import figure, read

before = dict(mpl.rcParams)
figure(read(sys.argv[1]))
assert dict(mpl.rcParams) == before
