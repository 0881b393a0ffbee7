"""The names in the small image folder that the tests make."""

DOMAINS = ("night sky", "sketch-2")  # neither is a valid name of a TFDS split
CLASSES = ("cat", "dog", "owl")
