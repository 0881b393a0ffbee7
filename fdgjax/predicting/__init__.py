"""A trained run as a classifier of images: to predict with, and to take away."""
