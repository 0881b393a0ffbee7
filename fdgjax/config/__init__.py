"""An experiment as data: the typed config, its command-line parsing, presets and checks."""

from fdgjax.config.data_keys import DataConfig
from fdgjax.config.make import changed_keys, completed, from_plain, make_config, read_config, resolved
from fdgjax.config.schema import (
    INCIDENTAL,
    AttackConfig,
    Config,
    DefenceConfig,
    ModelConfig,
    experiment_identity,
    for_seed,
    seeds_of,
    split_seed_of,
    to_plain,
)

__all__ = [
    "INCIDENTAL",
    "AttackConfig",
    "Config",
    "DataConfig",
    "DefenceConfig",
    "ModelConfig",
    "changed_keys",
    "completed",
    "experiment_identity",
    "for_seed",
    "from_plain",
    "make_config",
    "read_config",
    "resolved",
    "seeds_of",
    "split_seed_of",
    "to_plain",
]
