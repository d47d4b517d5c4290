"""The latest view of the run: instruments for Prometheus and OTLP metrics, and scrape targets.

The agent's loop imports it. Exporters get nothing from here.
"""
