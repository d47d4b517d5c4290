"""The output of an agent: the threads of exporters, instruments for Prometheus and OTLP, scrape targets, `now.json`.

The agent's loop imports it.
"""
