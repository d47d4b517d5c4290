"""The real frameworks, each in an environment of its own: `nox -f .ci/noxfile.py`."""
