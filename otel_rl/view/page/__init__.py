"""The report of a run: one HTML file that holds everything and makes no request."""
