"""Reports of a group: the runs of one job on several ranks or hosts. One module a form."""

from __future__ import annotations
