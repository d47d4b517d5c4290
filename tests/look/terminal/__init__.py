"""Tests of runs in the terminal."""
