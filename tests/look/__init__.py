"""Tests of how runs are shown."""
