"""Measurements: how fast a round runs beside PyTorch and XLA's own convolution (`round`), and how its cost grows with
the number of clients (`scaling`). docs/performance.md explains how to read them."""
