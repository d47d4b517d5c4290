"""Dashboards for Grafana and rules for Prometheus, made from data: `python -m dashboards`."""
