"""What an experiment is, as data."""

from fdgjax.config.schema import (
    Config,
    DataConfig,
    ModelConfig,
    for_seed,
    from_plain,
    make_config,
    read_config,
    seeds_of,
    to_plain,
)

__all__ = [
    "Config",
    "DataConfig",
    "ModelConfig",
    "for_seed",
    "from_plain",
    "make_config",
    "read_config",
    "seeds_of",
    "to_plain",
]
