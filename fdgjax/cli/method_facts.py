"""What an engineer asks first about a method, read from its code: who has labels, what it yields, what is sent."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from fdgjax.config import make_config, read_config
from fdgjax.experiments import Experiment, build
from fdgjax.methods import Entry
from fdgjax.utils.random import any_key
from fdgjax.utils.variables import bytes_of

NETWORK, WIDTH = "resnet10", 0.25
"""The network whose bytes are counted: it is small and has BatchNorm, which some methods treat separately."""
HEAD = (
    "| method | labels at | result | adapts | up | down | kept |",
    "|---|---|---|---|--:|--:|--:|",
)


class Facts(NamedTuple):
    """A row of the table.

    labels: where they are. comes_out: what predicts. adapts: whether a model is adapted to an unseen domain without its
    labels. up, down: bytes that a client sends and receives in a round; None if no model is sent. kept: bytes kept for
    a client from round to round, by itself or by the server. Each as a multiple of the network's bytes.
    """

    name: str
    labels: str
    comes_out: str
    adapts: bool
    up: float | None
    down: float | None
    kept: float


def facts(entries: Iterable[Entry]) -> Iterator[Facts]:
    """The facts of each method, with its default hyperparameters on rotated digits; nothing is compiled."""
    whole = bytes_of(experiment_of("fedavg").shapes)
    for entry in entries:
        built = experiment_of(entry.name)
        clients = len(built.train.ids)
        _, rows = jax.eval_shape(built.method.init, any_key(), built.train)
        up, down = (built.facts[f"bytes_{way}_per_round"] / clients / whole for way in ("up", "down"))
        yield Facts(
            name=entry.name,
            labels=entry.labels,
            comes_out=comes_out(entry, built),
            adapts=built.method.adapt is not None,
            up=None if built.method.pooled else up,
            down=None if built.method.pooled else down,
            kept=bytes_of(rows) / clients / whole,
        )


def experiment_of(name: str) -> Experiment:
    """A method on rotated digits, one client for each source domain, on one device."""
    config = make_config(name, "rotated_digits")
    config.update({"devices": 1, "model": {"name": NETWORK, "width": WIDTH}})
    return build(read_config(config))


def comes_out(entry: Entry, built: Experiment) -> str:
    """What predicts after training."""
    if entry.unlabelled:
        return "an encoder"
    return "one model" if built.method.trained is None else "a model for each client"


def facts_table(rows: Iterable[Facts]) -> Iterator[str]:
    """The lines of the table, in Markdown."""
    yield from HEAD
    for it in rows:
        sizes = " | ".join("-" if size is None else f"{size:.2f}" for size in (it.up, it.down, it.kept))
        yield f"| `{it.name}` | {it.labels} | {it.comes_out} | {'yes' if it.adapts else ''} | {sizes} |"
