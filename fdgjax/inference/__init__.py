"""A trained run: its models, what they predict and how they compare, and their export."""
