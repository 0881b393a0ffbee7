"""Protocols: which samples each client and the server train on, and which samples are used for evaluation."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from fdgjax.data.federation import Partition
from fdgjax.data.heterogeneity import mixed_domains, skewed_labels
from fdgjax.data.sources.domains import Domains
from fdgjax.data.splits import few_shot, hold_out, source_domains, split_domains, three_parts
from fdgjax.utils.errors import UserError


class SplitSpec(NamedTuple):
    """The arguments of a protocol: keys of `config.data`, and the seed of the split.

    target: name of the unseen domain. server: name of the domain that the server holds, with labels.
    excluded: names of domains that take no part, neither in training nor in evaluation.
    clients: number of clients; 0 for the number of source domains (hFedF v2, section 5.1).
    domains_per_client: d, the number of domains that each client holds (hFedF v2, Algorithm 5).
    homogeneity: lambda of Bai et al. in [0, 1], see `mixed_domains`; -1 for hFedF's split, by `domains_per_client`.
    label_skew: alpha of a Dirichlet distribution of the labels in each domain, see `skewed_labels`; 0 for none.
    validation, test: fractions of each client's data that are held out.
    shots: target samples given to each client for training; they are not test samples.
    """

    target: str = ""
    server: str = ""
    excluded: tuple[str, ...] = ()
    clients: int = 0
    domains_per_client: int = 1
    homogeneity: float = -1.0
    label_skew: float = 0.0
    validation: float = 0.1
    test: float = 0.1
    shots: int = 0
    seed: int = 0


class Protocol(NamedTuple):
    """How a data set is split.

    split: the partition of a data set.
    takes: the keys of `config.data` it uses, among those that only some protocols use.
    own: `(samples, domain, spec, groups) -> positions of training, validation and test samples` of a party that holds
      one domain and sees no other's samples; `groups` as in `Domains`, of its own samples. If the party is unseen, a
      model is tested on these test samples, or on all of its samples where there are none.
    """

    split: Callable[[Domains, SplitSpec], Partition]
    takes: frozenset[str]
    own: Callable[[int, int, SplitSpec, np.ndarray | None], tuple[np.ndarray, np.ndarray, np.ndarray]]

    @property
    def unseen(self) -> bool:
        """Whether a domain is left out of training."""
        return "target" in self.takes

    @property
    def labelled_server(self) -> bool:
        """Whether the server holds labelled data, and clients have no labels."""
        return "server" in self.takes


def leave_one_out(data: Domains, how: SplitSpec) -> Partition:
    """hFedF's protocol: one domain left out, the others split among clients, part of each client's data held out.

    The target domain without the shots is the unseen test set.

    Raises:
      UserError: unknown target, d out of range, or a client left without data.
    """
    rng = np.random.default_rng(np.random.SeedSequence([how.seed, 0]))
    sources = source_domains(data, how.target, how.excluded)
    rows = dealt(data, sources, how, rng)
    halves = held_out_of(data, rows, how, rng)
    train = [half[0] for half in halves]
    unseen = rows_of_domain(data, data.domain_names.index(how.target))
    if how.shots:
        extra, unseen = few_shot(unseen, data.labels, clients=len(rows), shots=how.shots, rng=rng, groups=data.groups)
        train = [np.concatenate(pair) for pair in zip(train, extra, strict=True)]
    nothing = np.zeros(0, np.int64)
    held_out = [half[1] for half in halves]
    return Partition(train, held_out, test=[nothing for _ in rows], target=unseen, server=nothing)


def every_domain(data: Domains, how: SplitSpec) -> Partition:
    """FDSE's protocol for Table 1: a client for each domain, its data split into training, validation and test samples.

    FDSE, appendix A7.1. No domain is unseen.

    Raises:
      UserError: a domain with too few samples, or fractions that leave none for training.
    """
    return one_client_each(data, source_domains(data, "", how.excluded), how)


def unseen_client(data: Domains, how: SplitSpec) -> Partition:
    """FDSE's protocol for Tables 2 and A9: as `every_domain`, but one client does not take part in training.

    It is tested on "the target domain's testing dataset" (appendix A8): its own test part. Each domain is split in the
    same way whichever domain is the target. Shots come from the target's training part.

    Raises:
      UserError: unknown target, a domain with too few samples, or fractions that leave none for training.
    """
    parts = one_client_each(data, source_domains(data, how.target, how.excluded), how)
    index = data.domain_names.index(how.target)
    rest, _, unseen = parts_of_domain(data, index, how)
    train = parts.train
    if how.shots:
        rng = generator(how, len(data.domain_names))
        extra, _ = few_shot(
            rest, data.labels, clients=len(train), shots=how.shots, rng=rng, tests=False, groups=data.groups
        )
        train = [np.concatenate(pair) for pair in zip(train, extra, strict=True)]
    return parts._replace(train=train, target=unseen)


def labelled_server(data: Domains, how: SplitSpec) -> Partition:
    """UAP's protocol: a labelled domain for the server, an unseen domain, and the others split among clients, whose
    labels are not used in training.

    The server holds all samples of its domain, and all samples of the target are test samples; part of each client's
    data is held out for evaluation only. With more clients than domains, domains are split (UAP, Table 8).

    References:
      UAP, section 5.

    Raises:
      UserError: unknown domain, the same domain for server and target, or a client left without data.
    """
    sources = source_domains(data, how.target, how.excluded)
    others = [data.domain_names[source] for source in sources]
    if how.server not in others:
        raise UserError(
            f"data.server got '{how.server}' with data.target='{how.target}'; expected another domain: "
            f"{', '.join(others)}"
        )
    index = data.domain_names.index(how.server)
    rng = np.random.default_rng(np.random.SeedSequence([how.seed, 2]))
    clients = tuple(domain for domain in sources if domain != index)
    rows = dealt(data, clients, how, rng)
    halves = held_out_of(data, rows, how, rng)
    train, held_out = ([half[part] for half in halves] for part in (0, 1))
    unseen = rows_of_domain(data, data.domain_names.index(how.target))
    nothing = [np.zeros(0, np.int64) for _ in rows]
    return Partition(train, held_out, test=nothing, target=unseen, server=rows_of_domain(data, index))


def own_halves(
    samples: int, domain: int, how: SplitSpec, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training and validation samples of a party, drawn from a stream of its own, as it does not know the others'
    sizes; no test samples. Raises like `hold_out`."""
    rng = generator(how, domain, purpose=5)
    return *hold_out(np.arange(samples), fraction=how.validation, rng=rng, groups=groups), np.zeros(0, np.int64)


def own_thirds(
    samples: int, domain: int, how: SplitSpec, groups: np.ndarray | None = None, whose: str = "a client"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test samples of a party: those that `every_domain` and `unseen_client` give its domain.
    Raises like `three_parts`."""
    rng, every = generator(how, domain), np.arange(samples)
    return three_parts(every, validation=how.validation, test=how.test, rng=rng, whose=whose, groups=groups)


DEALT = frozenset({"clients", "domains_per_client", "homogeneity", "label_skew"})
"""The keys of protocols that split domains among any number of clients."""

PROTOCOLS: Mapping[str, Protocol] = {
    "leave_one_out": Protocol(leave_one_out, DEALT | {"target", "shots"}, own_halves),
    "every_domain": Protocol(every_domain, frozenset({"test"}), own_thirds),
    "unseen_client": Protocol(unseen_client, frozenset({"target", "test", "shots"}), own_thirds),
    "labelled_server": Protocol(labelled_server, DEALT | {"target", "server"}, own_halves),
}


def dealt(data: Domains, sources: tuple[int, ...], how: SplitSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """The source domains split among the clients: each client's rows.

    `rng` is the stream of hFedF's split. `mixed_domains` and `skewed_labels` have separate streams, one per domain, so
    that they do not change runs without them.

    Raises:
      UserError: a client left without data, a label skew that changes nothing, or groups of samples in a split that
        mixes domains or labels, which would tear them apart.
    """
    if data.groups is not None and (how.homogeneity >= 0 or how.label_skew):
        key = "label_skew" if how.label_skew else "homogeneity"
        raise UserError(
            f"config.data.{key} got {getattr(how, key):g}, but samples are grouped, and this split draws single ones; "
            f"expected {0 if how.label_skew else -1}, or samples that are not grouped"
        )
    clients = how.clients or len(sources)
    mixing, skewing = (partial(generator, how, purpose=purpose) for purpose in (3, 4))
    if how.homogeneity < 0:
        rows = split_domains(
            data.domains,
            sources,
            clients=clients,
            domains_per_client=how.domains_per_client,
            rng=rng,
            names=data.domain_names,
            groups=data.groups,
        )
    else:
        rows = mixed_domains(data.domains, sources, clients=clients, homogeneity=how.homogeneity, streams=mixing)
    if how.label_skew:
        rows = skewed_labels(rows, data.domains, data.labels, alpha=how.label_skew, streams=skewing)
    return rows


def held_out_of(
    data: Domains, rows: list[np.ndarray], how: SplitSpec, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each client's training and validation samples, of its rows; raises like `hold_out`."""
    return [
        hold_out(own, fraction=how.validation, rng=rng, whose=f"client {client}", groups=data.groups)
        for client, own in enumerate(rows)
    ]


def one_client_each(data: Domains, domains: tuple[int, ...], how: SplitSpec) -> Partition:
    """A client for each of the domains, in their order, and nothing unseen."""
    each = map(partial(parts_of_domain, data, how=how), domains)
    train, validation, test = (list(column) for column in zip(*each, strict=True))
    nothing = np.zeros(0, np.int64)
    return Partition(train, validation, test, target=nothing, server=nothing)


def parts_of_domain(data: Domains, domain: int, how: SplitSpec) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A domain's training, validation and test samples; they depend on nothing but the domain and the seed."""
    rows = rows_of_domain(data, domain)
    groups = None if data.groups is None else data.groups[rows]
    train, validation, test = own_thirds(len(rows), domain, how, groups, data.domain_names[domain])
    return rows[train], rows[validation], rows[test]


def generator(how: SplitSpec, domain: int, purpose: int = 1) -> np.random.Generator:
    """A random stream for each domain and purpose; `domain` may be the number of domains, for one stream more."""
    return np.random.default_rng(np.random.SeedSequence([how.seed, purpose, domain]))


def rows_of_domain(data: Domains, domain: int) -> np.ndarray:
    """Positions of a domain's samples, ascending."""
    return np.flatnonzero(data.domains == domain)
