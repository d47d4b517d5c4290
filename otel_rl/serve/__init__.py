"""Servers for other machines: `head` receives the records of their agents, `bridge` OTLP from any SDK.

It imports the recorder, and no other wing.
"""
