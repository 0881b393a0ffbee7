"""Doors for the scripts of clusters, and the curves that are kept with the project."""
