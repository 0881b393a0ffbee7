"""Data sets as arrays of labelled images from several domains, and how they are shared out among clients."""
