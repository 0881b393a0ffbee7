"""Published weights: their names, their files, and their conversion to variables."""
