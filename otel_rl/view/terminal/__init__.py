"""Runs in a terminal: `otel-rl ls` and `otel-rl top`.

Everything is drawn as lines of styled spans, by functions that know no terminal. They are printed as they are, or shown
by an application of Textual, which only adds keys and a clock.
"""
