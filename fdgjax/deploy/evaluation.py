"""Evaluation at the nodes: each counts correct predictions on its own held-out samples and sends these counts, and the
figures of `config.figures` that it can compute by itself, and nothing of single samples.

Every party that trains evaluates its own model, and the model for an unseen domain, on samples that it does not train
on; the unseen party evaluates the model for an unseen domain on all of its samples, or on its test samples.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Method, PyTree
from fdgjax.data.federation import Federation, pad_rows
from fdgjax.data.sources.domains import Domains
from fdgjax.deploy.leaves import Leaves, by_path
from fdgjax.deploy.node_figures import TABLES, figure_leaves
from fdgjax.deploy.own_samples import OwnParts
from fdgjax.deploy.terms import Agreed, OwnSamples, Terms, as_data, federation_of, joined
from fdgjax.engine.round import State
from fdgjax.evaluation.evaluating import of_representations
from fdgjax.evaluation.metrics import Metrics, figures
from fdgjax.evaluation.probabilities import Observing, judged, probabilities_in
from fdgjax.evaluation.tally import Tally, compile_evaluation
from fdgjax.experiments import evaluation_settings
from fdgjax.methods import METHODS
from fdgjax.utils.random import any_key

SMALLEST = 10
"""The smallest number of samples, or of groups, of which a node sends counts, unless its settings have another."""


class Counted(NamedTuple):
    """A node's reply. arrays: counts by path and figures (`fdgjax.deploy.node_figures`), or the accuracies of linear
    probes by their percentage of labels. withheld: the tables of which nothing is sent, as they have some samples, but
    fewer than the smallest number. units: the number of groups, or of samples that are not grouped, of each table that
    was counted."""

    arrays: Leaves
    withheld: tuple[str, ...]
    units: Mapping[str, int]


Evaluate = Callable[[PyTree, PyTree, int], Counted]
"""`(own model or None, models for an unseen domain [models, ...] or None, round) -> Counted`."""


def has_predictions(terms: Terms) -> bool:
    """Whether the method predicts classes; one without labels is evaluated by probes at the unseen party alone."""
    return not METHODS[terms.config.method.name].unlabelled


def unseen_shapes(method: Method, federation: Federation) -> PyTree:
    """The shapes of the models for an unseen domain, `[models, ...]`; the federation may be any party's."""
    server, rows = jax.eval_shape(method.init, any_key(), federation)
    return jax.eval_shape(method.unseen, server, rows)


def as_given(method: Method, *, adapts: bool) -> Method:
    """The method as an evaluation of given models sees it: the state's `server` are the models for an unseen domain,
    and its `clients` the clients' own."""
    adapt = method.adapt if adapts else None
    return method._replace(
        predict=lambda server, client: client, unseen=lambda server, clients: server, pooled=False, adapt=adapt
    )


def make_evaluate(agreed: Agreed, parts: OwnParts, party: int, smallest: int) -> Evaluate:
    """A node's evaluation; nothing is compiled yet.

    Args:
      agreed: what is evaluated.
      parts: the node's samples.
      party: its number.
      smallest: of a table with fewer samples, or groups, nothing is sent.
    """
    terms, config = agreed.terms, agreed.terms.config
    unseen = party == terms.unseen
    tables = [parts.validation, parts.test, parts.target if unseen else parts.validation]
    samples, units = joined(tables), dict(zip(TABLES, (own.units for own in tables), strict=True))
    ends = np.cumsum([len(own.labels) for own in tables])
    validation, test, target = np.split(np.arange(ends[-1]), ends[:-1])
    federation = evaluated(agreed, samples)._replace(
        validation=pad_rows([validation]), test=pad_rows([test]), target=pad_rows([target])
    )
    method, execution = as_given(agreed.method, adapts=unseen), agreed.plan.execution
    data = as_data(samples, terms)
    if not has_predictions(terms):
        enough = units["target"] >= smallest
        return probed(agreed, method, data, federation, target if enough else None)
    model = agreed.client.whole
    further = probabilities_on(agreed, target if unseen else target[:0])  # nobody reads those of the other parties
    observe = compile_evaluation(method, model, evaluation_settings(config, execution), domains=1, further=further)

    def evaluate(own: PyTree, models: PyTree, round_: int) -> Counted:
        clients = own if own is not None else jax.tree.map(lambda leaf: leaf[0], models)
        shown = models if models is not None else jax.tree.map(lambda leaf: leaf[None], own)
        found: Any = jax.device_get(
            observe(state_of(agreed, jax.tree.map(lambda leaf: leaf[None], clients), shown, round_), federation)
        )
        if models is None:
            found = found._replace(target=None, adapted=None)
        counts = counted(found._replace(further=None), units | {"adapted": units["target"]}, smallest)
        if not further:
            return counts
        rows = {"target": [target] * len(found.further.target)} if unseen else {"source": [validation], "test": [test]}
        seen = {
            table: judged(getattr(found.further, table), of, data)
            for table, of in rows.items()
            if table in counts.units
        }
        return counts._replace(arrays=counts.arrays | figure_leaves(terms, party, max(smallest, 1), seen))

    return evaluate


def probabilities_on(agreed: Agreed, target: np.ndarray) -> Observing | None:
    """What observes the probabilities that figures need, those for an unseen domain on these rows; None without any."""
    if not agreed.terms.figures:
        return None
    batch_size, execution = agreed.terms.config.eval_batch_size, agreed.plan.execution
    observe = probabilities_in(agreed.client.whole, batch_size=batch_size, execution=execution)
    return lambda method, state, federation: observe(method, state, federation._replace(target=pad_rows([target])))


def evaluated(agreed: Agreed, samples: OwnSamples) -> Federation:
    """A federation of one client, with the samples that are evaluated; its tables are still those of training."""
    alone = agreed.terms._replace(clients=1, unseen=None)
    return federation_of(alone, samples, client=0)


def state_of(agreed: Agreed, clients: PyTree, models: PyTree, round_: int) -> State:
    """A state of these models, of a round."""
    return State(jnp.uint32(agreed.terms.config.seed), jnp.int32(round_), models, clients, {})


def counted(found: Any, units: Mapping[str, int], smallest: int) -> Counted:
    """The counts of the tables of some `Tallies` that have enough samples, or groups of them, by `units`; one that is
    None was not asked for."""
    asked = {name: units[name] for name, own in found._asdict().items() if isinstance(own, Tally)}
    withheld = tuple(name for name, size in asked.items() if 0 < size < smallest)
    sent = {name: size for name, size in asked.items() if size >= max(smallest, 1)}
    kept = found._replace(**dict.fromkeys(asked.keys() - sent.keys()))
    return Counted(by_path(kept), withheld, sent)


def probed(
    agreed: Agreed, method: Method, data: Domains, federation: Federation, target: np.ndarray | None
) -> Evaluate:
    """The evaluation of a method without labels, by linear probes on the unseen party's samples; None: too few."""
    if target is None:
        return lambda own, models, round_: Counted({}, ("target",), {})
    config, terms = agreed.terms.config, agreed.terms
    evaluation = of_representations(
        method,
        agreed.client.whole,
        data,
        probing=config.probe,
        targets=[target],
        encodings=[terms.encoding],
        seeds=[config.seed],
        batch_size=config.eval_batch_size,
        execution=agreed.plan.execution,
    )

    def evaluate(own: PyTree, models: PyTree, round_: int) -> Counted:
        del own
        rows = jax.tree.map(lambda leaf: leaf[:0], models)
        (found,) = evaluation.measure(evaluation.observe(state_of(agreed, rows, models, round_), federation))
        return Counted(probe_leaves(found), (), {})

    return evaluate


def probe_leaves(found: Metrics) -> Leaves:
    """The figures of linear probes as a node sends them, `NAME` or `NAME/PERCENT`."""
    return {
        f"{name}{'/' if percent else ''}{percent}": np.float64(value)
        for name, figure in figures(found).items()
        for percent, value in (figure.items() if isinstance(figure, Mapping) else [("", figure)])
    }
