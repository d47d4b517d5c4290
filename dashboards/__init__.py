"""Generation of Grafana dashboards and Prometheus rules from data: `python -m dashboards`."""
