"""Facts: what they conclude from plain columns."""
