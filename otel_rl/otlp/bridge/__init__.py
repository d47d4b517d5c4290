"""A service that brings OTLP from any SDK in any language to trackers, exactly per step."""
