"""Federated domain generalization in JAX: a method is a value made of pure functions, the rest is written once."""
