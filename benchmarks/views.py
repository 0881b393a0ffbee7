"""The cost of random views: their share of a training step of SimCLR, for both views of a minibatch.

python -m benchmarks.views --models resnet10 resnet18 --width 0.25
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.tables import markdown
from fdgjax.contract import Batch, Context, Variables
from fdgjax.data.augmentations.simclr import simclr_view
from fdgjax.methods.parts.optimizers import optimizer as named
from fdgjax.models import HEADS, MODELS
from fdgjax.models.client_model import as_model
from fdgjax.objectives.two_views import PARTS, TwoViewSettings
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.registry import lookup


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = options.add_argument
    add("--models", nargs="+", default=["resnet18"], help=", ".join(MODELS))
    add("--width", type=float, default=1.0, help="factor on the channels")
    add("--batch_size", type=positive_number, default=128, help="images per minibatch, each seen twice")
    add("--image_size", type=positive_number, default=32, help="height and width of the images")
    add("--steps", type=positive_number, default=4, help="in one compiled loop")
    add("--repeats", type=positive_number, default=5, help="how often both are timed, in turn")
    chosen = options.parse_args(argv)
    for name in chosen.models:
        lookup("model", name, MODELS)
    header = ["model", "both views, ms", "step, ms", "share"]
    print(markdown(header, [row(name, chosen) for name in chosen.models]))
    return 0


def row(name: str, chosen: Any) -> list[str]:
    """One model's line; the share is the median of the ratios within each repeat."""
    shape = (chosen.image_size, chosen.image_size, 3)
    network = lambda outputs: MODELS[name](outputs, chosen.width)  # noqa: E731
    model = as_model(HEADS["projection"](network, 10, chosen.width), shape)
    images = jax.random.uniform(jax.random.key(0), (chosen.batch_size, *shape), minval=-1)
    batch = Batch(images, jnp.zeros(chosen.batch_size, jnp.int32), jnp.ones(chosen.batch_size))
    settings = TwoViewSettings(temperature=0.07, decay=0.99, queue=1, dimension=1)
    objective = PARTS["simclr"].objective(model, simclr_view, settings)
    optimizer = named("adam", learning_rate=1e-4)
    variables = model.init(jax.random.key(1))
    nothing = Context((), (), variables, jnp.int32(0))

    def step(carry: tuple[Variables, Any], key: jax.Array) -> tuple[tuple[Variables, Any], None]:
        variables, state = carry
        loss = lambda params: objective({**variables, "params": params}, batch, key, nothing)  # noqa: E731
        gradient, changed = jax.grad(loss, has_aux=True)(variables["params"])
        updates, state = optimizer.update(gradient, state)
        return ({**variables, **changed, "params": optax.apply_updates(variables["params"], updates)}, state), None

    def views(total: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        first, second = (simclr_view(each, images) for each in jax.random.split(key))
        return total + jnp.sum(first) + jnp.sum(second), None

    keys = jax.random.split(jax.random.key(2), chosen.steps)
    whole = jax.jit(lambda start: jax.lax.scan(step, start, keys)[0])
    alone = jax.jit(lambda start: jax.lax.scan(views, start, keys)[0])
    begin = (variables, optimizer.init(variables["params"]))
    pairs = [(seconds_of(alone, jnp.zeros(())), seconds_of(whole, begin)) for _ in range(chosen.repeats + 1)][1:]
    both, step_time = (1e3 * statistics.median(each) / chosen.steps for each in zip(*pairs, strict=True))
    share = statistics.median(a / b for a, b in pairs)
    return [name, f"{both:.3g}", f"{step_time:.3g}", f"{100 * share:.1f} %"]


def seconds_of(function: Callable[[Any], Any], argument: Any) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    jax.block_until_ready(function(argument))
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
