"""The tables of papers, and comparisons of our own: a file of cells each, and the published figures beside it."""
