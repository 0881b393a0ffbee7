"""Protocols: which samples each client and the server train on, and which samples are used for evaluation."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fdgjax.data.federation import Partition
from fdgjax.data.given_splits import Parts
from fdgjax.data.protocol_parts import (
    DEALT,
    SplitSpec,
    dealt,
    generator,
    given_parts,
    nothing,
    one_client_each,
    parts_of_clients,
    parts_of_domain,
    rows_of_domain,
    unseen_samples,
    with_shots,
)
from fdgjax.data.sources.domains import Domains
from fdgjax.data.splits import hold_out, source_domains, three_parts
from fdgjax.utils.errors import UserError


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
    own: Callable[[int, int, SplitSpec, np.ndarray | None], Parts]

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

    The target domain without the shots is the unseen test set. With given splits (`fdgjax.data.given_splits`) the
    clients have test samples, too, and of a target with test samples these alone are tested on.

    Raises:
      UserError: unknown target, d out of range, or a client left without data.
    """
    rng = np.random.default_rng(np.random.SeedSequence([how.seed, 0]))
    sources = source_domains(data, how.target, how.excluded)
    train, held_out, test = parts_of_clients(data, dealt(data, sources, how, rng), how, rng)
    unseen, others = unseen_samples(data, how)
    return with_shots(data, Partition(train, held_out, test, unseen, server=nothing()), others, how, rng)


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
    if data.splits is not None and data.splits.test[rows_of_domain(data, index)].any():
        unseen, others = unseen_samples(data, how)
    else:
        others, _, unseen = parts_of_domain(data, index, how)
    return with_shots(data, parts._replace(target=unseen), others, how, generator(how, len(data.domain_names)))


def labelled_server(data: Domains, how: SplitSpec) -> Partition:
    """UAP's protocol: a labelled domain for the server, an unseen domain, and the others split among clients, whose
    labels are not used in training.

    The server holds all samples of its domain, and all samples of the target are test samples; part of each client's
    data is held out for evaluation only. With more clients than domains, domains are split (UAP, Table 8). With given
    splits the server holds the training samples of its domain, and the rest is as in `leave_one_out`.

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
    if not clients:
        raise UserError(
            f"data.server got '{how.server}' with data.target='{how.target}', which leaves no domain for clients; "
            "expected a third one"
        )
    train, held_out, test = parts_of_clients(data, dealt(data, clients, how, rng), how, rng)
    server = rows_of_domain(data, index)
    if data.splits is not None:
        server, _, _ = given_parts(data.splits, server, rng, how.server, groups=data.groups)
    return Partition(train, held_out, test, unseen_samples(data, how)[0], server)


def own_halves(samples: int, domain: int, how: SplitSpec, groups: np.ndarray | None = None) -> Parts:
    """Training and validation samples of a party, drawn from a stream of its own, as it does not know the others'
    sizes; no test samples. Raises like `hold_out`."""
    rng = generator(how, domain, purpose=5)
    return *hold_out(np.arange(samples), fraction=how.validation, rng=rng, groups=groups), nothing()


def own_thirds(
    samples: int, domain: int, how: SplitSpec, groups: np.ndarray | None = None, whose: str = "a client"
) -> Parts:
    """Training, validation and test samples of a party: those that `every_domain` and `unseen_client` give its domain.
    Raises like `three_parts`."""
    rng, every = generator(how, domain), np.arange(samples)
    return three_parts(every, validation=how.validation, test=how.test, rng=rng, whose=whose, groups=groups)


PROTOCOLS: Mapping[str, Protocol] = {
    "leave_one_out": Protocol(leave_one_out, DEALT | {"target", "shots"}, own_halves),
    "every_domain": Protocol(every_domain, frozenset({"test"}), own_thirds),
    "unseen_client": Protocol(unseen_client, frozenset({"target", "test", "shots"}), own_thirds),
    "labelled_server": Protocol(labelled_server, DEALT | {"target", "server"}, own_halves),
}
