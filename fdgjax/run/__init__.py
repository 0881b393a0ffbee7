"""One run: training, records, console, and reopening it."""
