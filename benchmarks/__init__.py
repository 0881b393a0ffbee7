"""Measurements of speed, memory and scaling, each a program; docs/performance.md lists and explains them."""
