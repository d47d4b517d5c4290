"""What leaves an agent: the threads of exporters, instruments for Prometheus and OTLP, scrape targets, what is open now.

The agent's loop imports it.
"""
