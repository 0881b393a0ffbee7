"""Federated domain generalization in JAX: a method is a value made of pure functions, the rest is written once."""


def __getattr__(name: str) -> str:
    """`__version__`, read from the installed package's metadata when it is asked for."""
    if name != "__version__":
        raise AttributeError(f"module 'fdgjax' has no attribute '{name}'")
    from importlib import metadata

    return metadata.version("fdgjax")
