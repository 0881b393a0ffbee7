"""Faults on purpose: `python -m tests.torture --minutes N`."""
