"""What all parties agree on before the first round, and the method that each of them builds from it."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdgjax.config import Config, completed, experiment_identity, from_plain, to_plain
from fdgjax.config.privacy import in_round, refuse_leaks
from fdgjax.contract import Execution, Method, Setup
from fdgjax.data.columns import Column, layout_of
from fdgjax.data.encoding import Encoding, unstandardised
from fdgjax.data.encoding import from_plain as encoding_from_plain
from fdgjax.data.encoding import to_plain as encoding_to_plain
from fdgjax.data.federation import Federation, Rows, on_device
from fdgjax.data.groups import numbered, one_of_each
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.deploy.deployable import check_deployable
from fdgjax.engine.privacy import check_accountant
from fdgjax.engine.round import RoundPlan
from fdgjax.evaluation.probability_figures import computed_alone
from fdgjax.evaluation.selection import HELD_OUT, SELECTIONS
from fdgjax.experiments import (
    batching_of,
    check_method,
    fit_model,
    make_method,
    make_plan,
    model_config,
    unsplit_encoding,
)
from fdgjax.methods import METHODS
from fdgjax.models.client_model import ClientModel
from fdgjax.models.frozen import check_content
from fdgjax.models.pretrained.convert import read_weights
from fdgjax.utils.errors import UserError


class Terms(NamedTuple):
    """What all parties know.

    config: the experiment's; each party sets its own data folder.
    class_names: in the order of the labels.
    sample_shape: that of one stored sample, `(H, W, channels)` of an image. clients: number of clients that train.
    columns: of a table; () for images. encoding: how stored values become inputs, with standardised columns once the
      clients have sent their statistics (`fdgjax.deploy.statistics`); None for images.
    unseen: the number of a party that trains nothing and only evaluates; None for none. Parties keep their numbers
      whichever of them is unseen; those that train are the engine's clients, in the order of their numbers.
    noise: the noise multiplier that follows from `config.privacy.epsilon` (`fdgjax.deploy.privacy`); 0 where the config
      has it, or needs none.
    trunk: what tells the weights of frozen stages, which each party reads from its own file, from others
      (`Trunk.content`); '' without such.
    """

    config: Config
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]
    clients: int
    columns: tuple[Column, ...] = ()
    encoding: Encoding | None = None
    unseen: int | None = None
    noise: float = 0.0
    trunk: str = ""

    @property
    def parties(self) -> int:
        """The number of parties, the unseen one included."""
        return self.clients + (self.unseen is not None)

    @property
    def trained(self) -> tuple[int, ...]:
        """The numbers of the parties that train, by the engine's number of the client."""
        return tuple(party for party in range(self.parties) if party != self.unseen)

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures of `config.figures` that a party computes of its own samples."""
        return computed_alone(self.config.figures, len(self.class_names), self.config.figures_threshold)

    @property
    def used_encoding(self) -> Encoding | None:
        """How stored values become inputs: a table's columns as they are, where nothing else was agreed on."""
        return self.encoding or (unstandardised(layout_of(self.columns)) if self.columns else None)

    @property
    def stored(self) -> type[np.generic]:
        """The type of stored samples."""
        return np.float32 if self.columns else np.uint8


class OwnSamples(NamedTuple):
    """A party's own samples: images uint8 `[samples, H, W, channels]` or rows of a table float32 `[samples, columns]`,
    labels int32 `[samples]`, and the names of their groups `[samples]`; None for samples that are not grouped."""

    inputs: np.ndarray
    labels: np.ndarray
    groups: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> "OwnSamples":
        """Some of the samples, by their positions."""
        return OwnSamples(self.inputs[rows], self.labels[rows], None if self.groups is None else self.groups[rows])

    @property
    def units(self) -> int:
        """The number of groups, or of samples that are not grouped."""
        return len(one_of_each(np.arange(len(self.labels)), self.groups))


def joined(parts: Sequence[OwnSamples]) -> OwnSamples:
    """The samples of several parts, of which all or none are grouped, as one."""
    named = [part.groups for part in parts if part.groups is not None]
    inputs, labels = (np.concatenate(each) for each in zip(*(part[:2] for part in parts), strict=True))
    return OwnSamples(inputs, labels, np.concatenate(named) if named else None)


def no_samples(terms: Terms) -> OwnSamples:
    """The samples of a party without any."""
    return OwnSamples(np.zeros((0, *terms.sample_shape), terms.stored), np.zeros(0, np.int32))


def as_data(own: OwnSamples, terms: Terms) -> Domains:
    """A party's own samples as a data set of one domain."""
    domains = np.zeros(len(own.labels), np.int32)
    groups = None if own.groups is None else numbered(domains, own.groups.tolist())
    return Domains(own.inputs, own.labels, domains, ("own",), terms.class_names, terms.columns, groups=groups)


class Agreed(NamedTuple):
    """The method, how its rounds are executed, and the client model, the same for all parties."""

    terms: Terms
    method: Method
    plan: RoundPlan
    client: ClientModel


def to_words(terms: Terms) -> str:
    """The terms as one JSON string, for a message."""
    encoding = None if terms.encoding is None else encoding_to_plain(terms.encoding)
    return json.dumps({**terms._asdict(), "config": to_plain(terms.config), "encoding": encoding})


def identity_words(terms: Terms) -> str:
    """`to_words` without the keys that say where a party's data lie and where it logs."""
    return json.dumps(json.loads(to_words(terms)) | {"config": experiment_identity(to_plain(terms.config))})


def federation_facts(terms: Terms) -> dict[str, Any]:
    """What tells the federation from another one that runs the same config, by the names of `Terms`."""
    names = ("class_names", "sample_shape", "clients", "columns", "unseen")
    return {name: getattr(terms, name) for name in names}


def from_words(words: str, *, earlier: bool = False) -> Terms:
    """The inverse of `to_words`.

    Args:
      words: the terms.
      earlier: whether an earlier version may have written them: keys that its config lacks then have their defaults.
        Two parties that train together have one version.

    Raises:
      UserError: a config of another version, or an invalid one.
    """
    found = json.loads(words)
    try:
        config = from_plain(completed(found["config"]) if earlier else found["config"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"the server's config cannot be read ({error}); expected one of this version of fdgjax; install the "
            "server's version"
        ) from error
    columns = tuple(Column(name, tuple(categories)) for name, categories in found["columns"])
    encoding = None if found["encoding"] is None else encoding_from_plain(found["encoding"], layout_of(columns))
    return Terms(
        config=config,
        class_names=tuple(found["class_names"]),
        sample_shape=tuple(found["sample_shape"]),
        clients=int(found["clients"]),
        columns=columns,
        encoding=encoding,
        unseen=found.get("unseen"),
        noise=float(found.get("noise", 0.0)),
        trunk=found.get("trunk", ""),
    )


def agree(terms: Terms) -> Agreed:
    """Builds the method for these terms; needs no samples.

    Raises:
      UserError: a config that cannot be deployed, or that is invalid in a simulation as well, or a file with other
        weights of frozen stages than the terms'.
    """
    config = terms.config
    entry, protocol = METHODS[config.method.name], PROTOCOLS[config.data.protocol]
    check_method(config, entry, protocol)
    check_deployable(config, terms.figures, entry, protocol)
    chosen = model_config(config.model, entry)
    weights = read_weights(chosen.pretrained, chosen.name, chosen.unit) if chosen.pretrained else None
    nothing = as_data(no_samples(terms), terms)
    _, made = fit_model(config, entry, nothing, unsplit_encoding(nothing), weights, terms.clients, terms.clients)
    check_content(made.trunk, terms.trunk, config.model.pretrained)
    batching = batching_of(config)
    # A node has one client: nothing is vectorised over clients or split over devices.
    execution = Execution(config.client_axis, config.chunk, 1, config.seed_axis, config.unroll)
    setup = Setup(made.whole, terms.clients, config.rounds, execution)
    method = make_method(config, entry, protocol, setup, batching)
    if method.pooled:
        raise UserError(
            f"'{entry.name}' gathers all samples at one place, which a deployment exists to avoid; expected another "
            "method; fdgjax train runs it as a reference"
        )
    alike = federation_of(terms, no_samples(terms), lengths=np.ones(terms.clients))
    plan = make_plan(config, batching, execution, method, alike)
    if config.privacy.unit:
        check_accountant()
        refuse_leaks(config, method, alike)
        plan = plan._replace(privacy=in_round(config, config.privacy.noise or terms.noise))
    if plan.privacy and SELECTIONS[config.selection].looks_at == HELD_OUT:
        raise UserError(
            f"config.selection got '{config.selection}' with config.privacy.unit={config.privacy.unit}, but no noise "
            "covers the choice of a round by what nodes say of their held-out samples; expected last"
        )
    return Agreed(terms, method, plan, made)


def federation_of(
    terms: Terms, own: OwnSamples, *, client: int | None = None, lengths: np.ndarray | None = None
) -> Federation:
    """The federation as one party sees it: its own samples and no others.

    Args:
      terms: what all parties know.
      own: the party's samples.
      client: the client that holds the samples; None for the server.
      lengths: each client's number of training samples, `[clients]`; None if the party knows only its own.
    """
    clients, count, alone = terms.clients, len(own.labels), client is not None
    row = np.arange(count)[None]
    known = np.zeros(clients) if lengths is None else lengths
    places = np.zeros((clients, max(1, count) if alone else 1))
    if client is not None:
        known[client] = count
        places[client, :count] = row
    # An empty array has no sample to trace.
    inputs = own.inputs if count else np.zeros((1, *own.inputs.shape[1:]), own.inputs.dtype)
    labels = own.labels if count else np.zeros(1)
    no_rows = Rows(on_device(np.zeros((clients, 1))), on_device(np.zeros(clients)))
    no_row = Rows(on_device(np.zeros((1, 1))), on_device(np.zeros(1)))
    return Federation(
        inputs=on_device(inputs, None),
        labels=on_device(labels),
        domains=on_device(np.zeros(len(labels))),
        ids=on_device(np.arange(clients)),
        train=Rows(on_device(places), on_device(known)),
        validation=no_rows,
        test=no_rows,
        target=no_row,
        server=no_row if alone or not count else Rows(on_device(row), on_device([count])),
        encoding=terms.used_encoding,
    )
