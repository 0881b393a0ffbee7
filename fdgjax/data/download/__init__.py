"""Fetching data sets from unreliable servers into verified folders that the loaders read."""
