"""Helpers that every other package of fdgjax may use."""
