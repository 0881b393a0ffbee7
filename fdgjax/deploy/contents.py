"""What each message of a deployment contains, by kind, and what of a client's state never leaves its node."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fdgjax.data.protocols import PROTOCOLS
from fdgjax.deploy.evaluated_rounds import counts_like
from fdgjax.deploy.evaluation import has_predictions, probe_leaves, unseen_shapes
from fdgjax.deploy.leaves import Leaves, by_path, prefixed
from fdgjax.deploy.node_figures import figures_like
from fdgjax.deploy.privacy import guards_samples
from fdgjax.deploy.server import ServerPrograms, make_server
from fdgjax.deploy.statistics import of_party
from fdgjax.deploy.terms import OwnSamples, Terms, agree, no_samples
from fdgjax.deploy.wire import GROUPS, OWN, SELECTED, UNSEEN, WORKDIR
from fdgjax.evaluation.metrics import measure_probe

FACTS: Mapping[str, str] = {
    "accepted": "the last round in which the server used this client's message",
    "compiled": "how many programs the node compiled",
    "elsewhere": "names of variables that only the server changes",
    "groups": "the number of groups among the samples of each table that was counted, where samples are grouped",
    "largest": "the largest magnitude of the message's numbers",
    "loss": "the mean training loss",
    "privacy_epsilon": "how much privacy the node has spent, in place of the loss where samples are protected",
    "round": "the number of finished rounds",
    "samples": "the number of training samples",
    "selected": "the round whose models are the best so far, or whose model is written, -1 for none",
    "seconds": "how long the node worked",
    "withheld": "the sets of samples of which the node sends no counts, because they are too small",
    "workdir": "a random name of the server's folder, by which a node keeps the models of its runs apart",
    "written": "that the model is written",
}
"""What messages say beside their arrays, by name; see `Request.facts` and `Reply.facts`."""


class Kind(NamedTuple):
    """A kind of message: when it is sent, the facts of the request, and those of the reply."""

    when: str
    down: tuple[str, ...]
    up: tuple[str, ...]


WORK = ("seconds", "compiled")
PROGRESS = ("round", "accepted", "elsewhere")
KINDS: Mapping[str, Kind] = {
    "join": Kind("when a node connects", (), ("samples", *WORK)),
    "describe": Kind("once, before the first round", (), WORK),
    "train": Kind("in each round", PROGRESS, ("loss", "largest", "round", "samples", *WORK)),
    "evaluate": Kind("after every few rounds", (*PROGRESS, SELECTED, WORKDIR), ("withheld", GROUPS, *WORK)),
    "finish": Kind("once, after the last round", (*PROGRESS, SELECTED, WORKDIR), ("written", SELECTED, *WORK)),
}
"""The messages, by a request's `action`."""
LEFT_OUT = "evaluate (unseen)"
"""The kind `evaluate` as the unseen party has it, which trains nothing: other arrays, and no noise."""


class Contents(NamedTuple):
    """Kinds of messages; shapes of arrays by path: what each kind has down and up, and what of a client's state stays
    at its node."""

    kinds: Mapping[str, Kind]
    down: Mapping[str, Leaves]
    up: Mapping[str, Leaves]
    kept: Leaves


def contents_of(terms: Terms) -> Contents:
    """What messages contain, found by abstract evaluation. Raises a `UserError` like `make_server`."""
    server = make_server(agree(terms), no_samples(terms))
    down = dict.fromkeys(KINDS, Leaves()) | {name: by_path(server.shapes.sent) for name in ("train", "finish")}
    up = dict.fromkeys(KINDS, Leaves()) | {"train": by_path(server.shapes.message)}
    down["evaluate"], up["evaluate"] = evaluation_of(server)
    down[LEFT_OUT], up[LEFT_OUT] = evaluation_left_out(server)
    for name in ("evaluate", LEFT_OUT):
        if not down[name]:
            del down[name], up[name]
    if terms.config.data.standardise:
        one = OwnSamples(np.zeros((1, *terms.sample_shape), terms.stored), np.zeros(1, np.int32))
        up["describe"] = dict(of_party(one, terms))
    else:
        del down["describe"], up["describe"]
    return Contents(kinds_of(terms), down, up, kept_at_node(server))


def kinds_of(terms: Terms) -> Mapping[str, Kind]:
    """The kinds of messages, which have what was spent in place of the loss where samples are protected, no number of
    groups unless samples are grouped, and the unseen party's evaluation, if there is one."""
    train, evaluate = KINDS["train"], KINDS["evaluate"]
    if guards_samples(terms.config):
        train = train._replace(up=tuple("privacy_epsilon" if fact == "loss" else fact for fact in train.up))
    if not terms.config.data.group:
        evaluate = evaluate._replace(up=tuple(fact for fact in evaluate.up if fact != GROUPS))
    left_out = evaluate._replace(when=f"{evaluate.when}, of client {terms.unseen}, which trains nothing")
    return {**KINDS, "train": train, "evaluate": evaluate, **({} if terms.unseen is None else {LEFT_OUT: left_out})}


def evaluation_of(server: ServerPrograms) -> tuple[Leaves, Leaves]:
    """The arrays of an evaluation down and up, of a client that trains and holds samples out by the config."""
    terms = server.agreed.terms
    if not has_predictions(terms) or guards_samples(terms.config):
        return {}, {}
    own, models = prefixed(OWN, by_path(server.shapes.sent)), models_of(server)
    tables = {"source": 1}
    tables |= {"test": 1} if "test" in PROTOCOLS[terms.config.data.protocol].takes else {}
    tables |= {"target": len(next(iter(models.values())))} if models else {}
    figures = figures_like(terms, {table: number for table, number in tables.items() if table != "target"})
    return own | models, counts_like(tables) | figures


def evaluation_left_out(server: ServerPrograms) -> tuple[Leaves, Leaves]:
    """The arrays of the unseen party's evaluation down and up; none where it is not asked for one."""
    agreed, terms = server.agreed, server.agreed.terms
    models = models_of(server)
    if terms.unseen is None or not models:
        return {}, {}
    if has_predictions(terms):
        number = len(next(iter(models.values())))
        tables = {"target": number, **({"adapted": number} if agreed.method.adapt else {})}
        return models, counts_like(tables) | figures_like(terms, tables)
    probe = terms.config.probe
    return models, probe_leaves(measure_probe(dict.fromkeys(probe.percents, np.zeros((1, probe.repeats)))))


def models_of(server: ServerPrograms) -> Leaves:
    """The models for an unseen domain as they are sent to those that evaluate them; none where only the nodes know
    them."""
    if not server.knows_unseen:
        return {}
    return prefixed(UNSEEN, by_path(unseen_shapes(server.agreed.method, server.federation)))


def kept_at_node(server: ServerPrograms) -> Leaves:
    """The leaves of a client's row that its node alone holds."""
    row = by_path(server.shapes.context.client)
    return {path: leaf for path, leaf in row.items() if path not in server.placement.server}
