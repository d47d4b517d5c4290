"""Settings: keywords of `init`, environment variables, files, the variables of OpenTelemetry and of launchers.

It imports `files` and what is below.
"""
