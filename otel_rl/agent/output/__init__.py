"""The latest view of the run: instruments for Prometheus and OTLP metrics, and the targets of a scrape.

The agent's loop imports it; nothing that exporters get passes here.
"""
