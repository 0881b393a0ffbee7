"""Any supervised method on labels that a model trained at the server has guessed.

So UAP (sections 6.2 and 11) runs FedSR, FedGMA, FedDG-GA and FedDG where clients have no labels: "we pretrain the
server model with the server dataset and generate pseudo labels prior to client training".
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fdgjax.contract import Context, Each, Guess, Method, Prepared, PyTree, Samples, Setup, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.clients import over_clients
from fdgjax.engine.local import Batching, samples_of, train_locally
from fdgjax.methods.parts.extend import Row, extend
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.pseudo_labels import GUESSES, outputs_for_all
from fdgjax.objectives import cross_entropy
from fdgjax.registry import lookup


@dataclasses.dataclass(frozen=True)
class PseudoLabels:
    """How a supervised method gets labels for clients that have none.

    epochs: of training at the server beforehand. guess: `centroids` or `argmax`.
    """

    epochs: int = 30
    guess: str = "centroids"


def on_pseudo_labels(
    build: Callable[[Setup, Any], Method], setup: Setup, h: Any, how: PseudoLabels, batching: Batching
) -> Method:
    """The method on guessed labels, starting from the model that guessed them.

    Before the first round a model is trained on the server's data (cross-entropy, the method's client optimiser),
    labels each client's samples once and for all, and takes the place of the method's fresh model; hypernetworks make
    their own. Nothing of the server's data is used after that.

    Args:
      build, setup, h: the method.
      how: how labels are made.
      batching: minibatches of the training at the server.

    Raises:
      UserError: unknown `guess`.
    """
    guess_of, model = lookup("guess", how.guess, GUESSES), setup.model

    def pretrained(key: jax.Array, federation: Federation) -> Variables:
        init_key, train_key = jax.random.split(key)
        variables, optimizer = model.init(init_key), client_optimizer(h, setup.rounds)
        trained = train_locally(
            cross_entropy(model),
            optimizer,
            batching._replace(epochs=how.epochs),
            federation,
            Context((), (), variables, jnp.zeros((), jnp.int32)),
            optimizer.init(variables["params"]),
            federation.server.places[0],
            federation.server.length[0],
            train_key,
        )
        return trained.variables

    def guessed(variables: Variables, federation: Federation) -> Guess:
        def one_client(shared: PyTree, rows: jax.Array, count: jax.Array) -> Guess:
            samples = samples_of(shared[1], rows, count, batching.batch_size)
            return guess_of(outputs_for_all(model, shared[0], samples), samples.mask)

        guess: Guess = over_clients(one_client, setup.execution)((variables, federation), *federation.train)
        return guess

    def init(key: jax.Array, federation: Federation) -> tuple[PyTree, PyTree]:
        variables = pretrained(key, federation)
        # The model's own init is called, and its numbers dropped, for those who ask which layers it goes through.
        start_here = model._replace(init=lambda key: jax.tree.map(lambda _, leaf: leaf, model.init(key), variables))
        from_it = build(setup._replace(model=start_here), h)
        guess = guessed(variables, federation)
        return extend(from_it, row=Row(lambda fresh: guess)).init(key, federation)

    extended = extend(build(setup, h), row=Row(lambda fresh: ()))

    def prepare(context: Context, samples: Samples) -> Prepared:
        guess = context.client.more
        if extended.prepare is None:
            return Prepared(guess)
        return Prepared(guess, extended.prepare(context, Samples(samples.mask, labelled_by(guess, samples.each))).notes)

    return extended._replace(init=init, prepare=prepare)


def labelled_by(guess: Guess, each: Each) -> Each:
    """Going through a client's samples with the labels guessed for them."""
    return lambda function, better=None: each(function, guess if better is None else better)
