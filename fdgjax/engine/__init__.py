"""The round, compiled: start, local training, aggregation, server update; and evaluation over many models."""

from fdgjax.contract import Execution
from fdgjax.engine.clients import CLIENT_AXES, everywhere, over_clients
from fdgjax.engine.round import Plan, RoundInfo, State, compile_round, init_state

__all__ = [
    "CLIENT_AXES",
    "Execution",
    "Plan",
    "RoundInfo",
    "State",
    "compile_round",
    "everywhere",
    "init_state",
    "over_clients",
]
