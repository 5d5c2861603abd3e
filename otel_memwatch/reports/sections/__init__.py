"""Sections of reports: functions of `(run, page)`."""
