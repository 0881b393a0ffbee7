"""The compiled round: start, local training, aggregation, server update; and functions run over clients and seeds."""

from fdgjax.contract import Execution
from fdgjax.engine.clients import CLIENT_AXES, everywhere, over_clients
from fdgjax.engine.devices import split_for, suitable_devices
from fdgjax.engine.round import RoundInfo, RoundPlan, State, compile_init, compile_round, init_state
from fdgjax.engine.seeds import SEED_AXES, each_seed, over_seeds

__all__ = [
    "CLIENT_AXES",
    "SEED_AXES",
    "Execution",
    "RoundInfo",
    "RoundPlan",
    "State",
    "compile_init",
    "compile_round",
    "each_seed",
    "everywhere",
    "init_state",
    "over_clients",
    "over_seeds",
    "split_for",
    "suitable_devices",
]
