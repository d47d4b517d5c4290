"""Real servers with the files of deploy/, on free ports: Collector, Jaeger, Prometheus and Alertmanager."""
