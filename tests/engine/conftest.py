"""Tiny programs take longer to optimise than to run."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def _compile_quickly() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
