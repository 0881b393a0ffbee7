"""One run's life."""
