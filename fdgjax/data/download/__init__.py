"""Fetching data sets: from a server that may fail in any way to a verified folder that the loaders read."""
