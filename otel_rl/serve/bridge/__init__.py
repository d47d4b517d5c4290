"""The bridge: a service that receives OTLP from any SDK and exports each step to trackers exactly once."""
