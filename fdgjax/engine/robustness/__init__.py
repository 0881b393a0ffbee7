"""Hostile clients, and the defences against them."""
