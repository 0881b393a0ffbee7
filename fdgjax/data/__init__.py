"""Data sets as arrays of labelled images from several domains, and their split among clients; downloads, augmentations,
streaming."""
