"""What Flower 1.41's SecAgg+ does, as docs/deployment.md describes it: its mod and its workflow, unchanged, in memory.

Another version of Flower needs another page: then nothing is tested here.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Status,
    bytes_to_ndarray,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key, generate_key_pairs
from flwr.supercore.task_identity import TaskIdentity

CLIP, LEVELS, MODULUS = 8.0, 2**22, 2**32
"""The workflow's defaults: the range of numbers, its levels, and that of the masks."""
SETUP, SHARE, COLLECT, UNMASK = range(4)
NEVER = UNMASK + 1

pytestmark = pytest.mark.skipif(not version("flwr").startswith("1.41."), reason="the page describes Flower 1.41")


class Own(NamedTuple):
    """What a node would send: its update and its number of samples."""

    update: list[np.ndarray]
    samples: int


class Strategy(FedAvg):
    """Asks these nodes, and keeps the mean that the workflow hands over."""

    def __init__(self, nodes: Iterable[int]) -> None:
        super().__init__()
        self.nodes, self.mean = list(nodes), list[np.ndarray]()

    def configure_fit(self, server_round: Any, parameters: Any, client_manager: Any) -> Any:
        return [(SimpleNamespace(node_id=node), FitIns(parameters, {})) for node in self.nodes]

    def aggregate_fit(self, server_round: Any, results: Any, failures: Any) -> Any:
        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


class Grid:
    """A grid in memory, which keeps what the server sees. A node answers before the stage in which it `ends`; `ask`
    changes what the server sends."""

    def __init__(self, nodes: Mapping[int, Own], ends: Mapping[int, int], ask: Callable[[int, Any], None]) -> None:
        self.app, self.ends, self.ask, self.stage = app_of(nodes), ends, ask, SETUP
        self.own = {node: Context(1, node, {}, RecordDict(), {}, 1) for node in nodes}
        self.seen: dict[int, dict[int, Any]] = {}

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        replies = []
        for sent in messages:
            message, node = copy.deepcopy(sent), sent.metadata.dst_node_id
            self.ask(self.stage, message.content.config_records[RECORD_KEY_CONFIGS])
            message.metadata.__dict__["_message_id"] = "1"
            if self.ends.get(node, NEVER) <= self.stage:
                continue
            try:
                reply = self.app(message, self.own[node])
            except KeyError:  # at a real node, a reply with an error
                continue
            reply.metadata.__dict__["_src_node_id"] = node
            self.seen.setdefault(self.stage, {})[node] = reply.content.config_records[RECORD_KEY_CONFIGS]
            replies.append(reply)
        self.stage += 1
        return replies


def app_of(nodes: Mapping[int, Own]) -> ClientApp:
    """A message-based app with Flower's mod around it."""
    app = ClientApp(mods=[secaggplus_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        own = nodes[message.metadata.dst_node_id]
        made = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(own.update), own.samples, {})
        return Message(compat.fitres_to_recorddict(made, True), reply_to=message)

    return app


def nothing_else(stage: int, configs: Any) -> None:
    """Asks for what the workflow asks for."""


def grid_of(
    nodes: Mapping[int, Own], ends: Mapping[int, int] | None = None, ask: Callable[[int, Any], None] = nothing_else
) -> Grid:
    return Grid(nodes, ends or {}, ask)


def secure_mean(nodes: Mapping[int, Own], grid: Grid) -> list[np.ndarray]:
    """One round of Flower's workflow: the mean; empty if the workflow has given the round up."""
    strategy = Strategy(nodes)
    context: Any = LegacyContext(Context(1, 0, {}, RecordDict(), {}, 1), strategy=strategy)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        ndarrays_to_parameters([np.zeros(1)]), True
    )
    most = float(max(own.samples for own in nodes.values()))
    SecAggPlusWorkflow(1.0, 0.5, max_weight=most)(grid, context)  # type: ignore[arg-type]
    return strategy.mean


def nodes_of(count: int, shape: tuple[int, ...] = (30,), seed: int = 0) -> dict[int, Own]:
    rng = np.random.default_rng(seed)
    return {11 + node: Own([rng.uniform(-1, 1, shape)], int(rng.integers(20, 100))) for node in range(count)}


def weighted_mean(nodes: Iterable[Own]) -> np.ndarray:
    each = list(nodes)
    return np.average([own.update[0] for own in each], axis=0, weights=[own.samples for own in each])


def bound(nodes: Iterable[Own]) -> float:
    """Each node rounds its weight once, and each of its numbers once, by at most a level; levels are 2 CLIP / LEVELS
    apart."""
    each = list(nodes)
    shares = sum(own.samples for own in each) / max(own.samples for own in each)
    return len(each) * (2 * CLIP + 2) / LEVELS / shares


@pytest.fixture(autouse=True)
def a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.mark.parametrize(("count", "seed"), [(2, 0), (3, 1), (5, 2)])
def test_mod_and_workflow_serve_a_message_based_app(count: int, seed: int) -> None:
    nodes = nodes_of(count, seed=seed)
    (found,) = secure_mean(nodes, grid_of(nodes))
    assert np.abs(found - weighted_mean(nodes.values())).max() <= bound(nodes.values())


def test_a_number_without_axes_is_wrong() -> None:
    nodes = nodes_of(3, shape=())
    (found,) = secure_mean(nodes, grid_of(nodes))
    assert np.abs(found - weighted_mean(nodes.values())) > 1


@pytest.mark.parametrize("stage", [SETUP, SHARE])
def test_a_node_lost_before_its_shares_are_out_ends_the_round(stage: int) -> None:
    nodes = nodes_of(4)
    assert secure_mean(nodes, grid_of(nodes, {12: stage})) == []


@pytest.mark.parametrize("stage", [COLLECT, UNMASK])
def test_a_node_lost_later_does_not(stage: int) -> None:
    nodes = nodes_of(4)
    (found,) = secure_mean(nodes, grid_of(nodes, {12: stage}))
    counted = [own for node, own in nodes.items() if node != 12 or stage == UNMASK]
    assert np.abs(found - weighted_mean(counted)).max() <= bound(counted)


def test_a_node_hands_out_both_secrets_of_a_node() -> None:
    def greedy(stage: int, configs: Any) -> None:
        if stage == UNMASK:
            configs[Key.DEAD_NODE_ID_LIST] = list(configs[Key.ACTIVE_NODE_ID_LIST])

    nodes = nodes_of(3)
    grid = grid_of(nodes, ask=greedy)
    with suppress(ValueError):  # it did not ask for this
        secure_mean(nodes, grid)
    for replied in grid.seen[UNMASK].values():
        assert sorted(replied[Key.NODE_ID_LIST]) == sorted([*nodes, *nodes])


def test_a_pairs_mask_has_28_bits() -> None:
    for _ in range(20):
        key = generate_shared_key(generate_key_pairs()[0], generate_key_pairs()[1])
        assert folded(key) & 0x80808080 == 0
        ours, theirs = (pseudo_rand_gen(seed, MODULUS, [(5,)]) for seed in (key, folded(key).to_bytes(4, "little")))
        np.testing.assert_array_equal(ours[0], theirs[0])


def folded(key: bytes) -> int:
    """All that the masks depend on: the exclusive or of the key's words of four bytes."""
    return int(np.bitwise_xor.reduce(np.frombuffer(key, "<u4")))


@pytest.mark.slow
def test_the_server_finds_an_update_by_trying_masks() -> None:
    """Of two nodes, from what the server sees of an ordinary round. Of the 28 bits only 10 are tried here, around the
    mask that was used; a match is recognised by the node's weight, which the server knows, and by the range."""
    nodes, grid = nodes_of(2), grid_of(nodes_of(2))
    secure_mean(nodes, grid)
    masked = [bytes_to_ndarray(raw) for raw in grid.seen[COLLECT][11][Key.MASKED_PARAMETERS]]
    shapes = [leaf.shape for leaf in masked]
    told = [zip(one[Key.NODE_ID_LIST], one[Key.SHARE_LIST], strict=True) for one in grid.seen[UNMASK].values()]
    own_mask = pseudo_rand_gen(
        combine_shares([share for one in told for node, share in one if node == 11]), MODULUS, shapes
    )
    left = [np.subtract(leaf, mask) % MODULUS for leaf, mask in zip(masked, own_mask, strict=True)]
    weight = round(nodes[11].samples / max(own.samples for own in nodes.values()) * LEVELS)

    found = []
    used = seed_of(grid, 11, 12)
    for seed in range(used & ~0xFFF, (used & ~0x3FF) + 0x400):
        mask = pseudo_rand_gen(seed.to_bytes(4, "little"), MODULUS, shapes)
        seen = [np.add(leaf, other) % MODULUS for leaf, other in zip(left, mask, strict=True)]
        if int(seen[0][0]) == weight and seen[1].max() <= LEVELS:
            found.append(dequantize(seen[1:], CLIP, LEVELS)[0] * LEVELS / weight)
    (update,) = found
    assert np.abs(update - nodes[11].update[0]).max() <= (2 * CLIP + 2) / weight


def seed_of(grid: Grid, node: int, other: int) -> int:
    """The seed of the mask between two nodes, from what only the first knows."""
    secret: Any = grid.own[node].state.config_records[RECORD_KEY_STATE]["sk1"]
    public: Any = grid.seen[SETUP][other][Key.PUBLIC_KEY_1]
    return folded(generate_shared_key(bytes_to_private_key(secret), bytes_to_public_key(public)))
