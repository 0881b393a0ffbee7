"""Launchers for clusters, and the curves that are kept with the project."""
