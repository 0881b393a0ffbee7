"""The cost of the server's part of a round, in CPU time: a rule on stacked updates, or a method's whole server step.

python -m benchmarks.aggregation --clients 200 --contenders mean cosine_softmax global_alignment min_norm
python -m benchmarks.aggregation --clients 3 --contenders hfedf
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models import CLASSES, MODELS
from benchmarks.tables import markdown
from fdgjax import models
from fdgjax.aggregation import RULES
from fdgjax.aggregation.scopes import SCOPES
from fdgjax.contract import Model, PyTree, Rule, ServerStep, Setup
from fdgjax.methods import METHODS
from fdgjax.models.client_model import as_model
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.processor import processor_name
from fdgjax.utils.registry import lookup

MIB = 2**20


class Program(NamedTuple):
    """A compiled contender and its arguments; `kept`: the first of them is donated, and its result takes its place."""

    run: Any
    arguments: tuple[PyTree, ...]
    kept: bool


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = options.add_argument
    scoped = [f"{name}:{scope}" for name in ("cosine_softmax", "global_alignment", "min_norm") for scope in SCOPES]
    add("--contenders", nargs="+", default=["mean", *scoped], help="rules, RULE:SCOPE, or methods with a hypernetwork")
    add("--clients", type=positive_number, default=200, help="updates that the server gets")
    add("--model", default="inception", help="the clients' network, an entry of benchmarks.models.MODELS")
    add("--image_size", type=positive_number, default=32, help="height and width of the images")
    add("--repeats", type=positive_number, default=5, help="how often all contenders are timed, in turn")
    chosen = options.parse_args(argv)
    network = models.MODELS[lookup("model", chosen.model, MODELS).network or chosen.model](CLASSES)
    model = as_model(network, (chosen.image_size, chosen.image_size, 3))
    programs = {name: program(name, model, chosen.clients) for name in chosen.contenders}
    print(table(programs, measured(programs, chosen.repeats)))
    print(f"\n{processor_name()}; {chosen.clients} clients, medians of {chosen.repeats} repeats")
    return 0


def program(name: str, model: Model, clients: int) -> Program:
    """A contender by its name."""
    shapes = model.shapes()["params"]
    if name in METHODS:
        return server_step(name, model, clients)
    rule, _, scope = name.partition(":")
    chosen: Rule = partial(lookup("rule", rule, RULES), **({"scope": scope} if scope else {}))
    arguments = (normal_like(shapes, clients), jnp.ones(clients))
    return Program(jax.jit(chosen).lower(*arguments).compile(), arguments, kept=False)


def server_step(name: str, model: Model, clients: int) -> Program:
    """Aggregation of messages that look like the clients' parameters, and the update of the server; its state is
    donated, as in a round."""
    method = METHODS[name].build(Setup(model, clients, 200), METHODS[name].hyper())
    ids: Any = Ids(jnp.arange(clients))
    server, rows = jax.jit(lambda key: method.init(key, ids))(jax.random.key(0))
    messages = normal_like(model.shapes()["params"], clients)

    def step(server: PyTree, rows: PyTree, messages: PyTree, weights: jax.Array) -> PyTree:
        gradient, _ = method.aggregate(server, rows, messages, weights)
        return method.update(server, rows, gradient, ServerStep(jnp.int32(5), jax.random.key(1)))[0]

    arguments = (server, rows, messages, jnp.ones(clients))
    return Program(jax.jit(step, donate_argnums=0).lower(*arguments).compile(), arguments, kept=True)


class Ids(NamedTuple):
    """All that a method without pixels asks of a federation when it starts."""

    ids: jax.Array


def normal_like(shapes: PyTree, clients: int) -> PyTree:
    """Updates `[clients, ...]` that agree a little: independent numbers, and common ones of a fifth of their size."""
    rng = np.random.default_rng(0)

    def draw(leaf: Any) -> jax.Array:
        common = np.float32(0.2) * rng.standard_normal(leaf.shape, np.float32)
        updates = rng.standard_normal((clients, *leaf.shape), np.float32)
        updates += common
        return jnp.asarray(updates)

    return jax.tree.map(draw, shapes)


def measured(programs: Mapping[str, Program], repeats: int) -> dict[str, list[float]]:
    """Seconds of CPU time of every contender, all in turn; the first repeat is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    arguments = {name: each.arguments for name, each in programs.items()}
    for _ in range(repeats + 1):
        for name, each in programs.items():
            begin = time.process_time()
            result = jax.block_until_ready(each.run(*arguments[name]))
            seconds[name].append(time.process_time() - begin)
            if each.kept:
                arguments[name] = (result, *arguments[name][1:])
            del result
    return {name: values[1:] for name, values in seconds.items()}


def table(programs: Mapping[str, Program], seconds: Mapping[str, Sequence[float]]) -> str:
    """One line for each contender; ratios to the mean are taken within each repeat."""
    header, lines = ["contender", "CPU ms", "weighted means", "XLA MiB"], []
    for name, values in seconds.items():
        ratios = [a / b for a, b in zip(values, seconds.get("mean", ()), strict=False)]
        ratio = "-" if programs[name].kept or not ratios else f"{statistics.median(ratios):.1f}"
        memory = programs[name].run.memory_analysis().temp_size_in_bytes / MIB
        lines.append([name, f"{1e3 * statistics.median(values):,.3g}", ratio, f"{memory:,.0f}"])
    return markdown(header, lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
