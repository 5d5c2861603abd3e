"""Grafana dashboards, Prometheus rules and their runbook, generated from the catalogue of metrics."""
