"""Published weights: their names, their files, and how they become variables."""
