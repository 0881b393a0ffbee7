"""Sweeps: several runs by one command."""
