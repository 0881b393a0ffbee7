"""Where JAX keeps compiled programs."""

from pathlib import Path

import jax
import pytest

from fdgjax.config import make_config, read_config
from fdgjax.run.compilation_cache import remember_compilations


@pytest.mark.parametrize("said", ["", "of-the-user"])
def test_the_cache_is_where_the_user_said_or_beside_the_data(said: str, tmp_path: Path) -> None:
    key, config = "jax_compilation_cache_dir", make_config("fedavg", "rotated_digits")
    config.data.cache_dir, before = str(tmp_path), jax.config.values[key]
    try:
        jax.config.update(key, said)
        remember_compilations(read_config(config))
        assert jax.config.values[key] == (said or str(tmp_path / "compiled"))
    finally:
        jax.config.update(key, before)
