"""JAX's persistent cache of compiled programs: its location, and the events that JAX reports about it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from fdgjax.config import Config
from fdgjax.data.sources.cache import cache_root


def remember_compilations(config: Config) -> None:
    """Keeps compiled programs on disk, so that the same experiment need not be compiled again.

    They are stored beside the decoded data, or in the folder that `JAX_COMPILATION_CACHE_DIR` names.
    `JAX_ENABLE_COMPILATION_CACHE=false` switches the cache off.
    """
    if not jax.config.values["jax_compilation_cache_dir"]:
        jax.config.update("jax_compilation_cache_dir", str(cache_root(config.data.cache_dir) / "compiled"))


def remember_all_programs(folder: Path) -> None:
    """Keeps every compiled program in a folder that only its owner reads, however short its compilation, for processes
    that live for one round."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextlib.contextmanager
def jax_events(name: str) -> Iterator[list[str]]:
    """A list that gets an entry for each monitoring event called `name` that JAX records within the block."""
    events: list[str] = []

    def note(event: str, **_: Any) -> None:
        if event == name:
            events.append(event)

    jax.monitoring.register_event_listener(note)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_listener(note)
