"""What protocols are made of: domains dealt to clients, samples held out or given for a part, the unseen ones."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fdgjax.data.federation import Partition
from fdgjax.data.given_splits import Parts, Splits, check_apart
from fdgjax.data.heterogeneity import mixed_domains, skewed_labels
from fdgjax.data.owners import Owners, owned_rows
from fdgjax.data.sources.domains import Domains
from fdgjax.data.splits import few_shot, hold_out, split_domains, three_parts
from fdgjax.utils.errors import UserError, printable

DEALT = frozenset({"clients", "domains_per_client", "homogeneity", "label_skew"})
"""The keys of protocols that split domains among any number of clients."""


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


def dealt(data: Domains, sources: tuple[int, ...], how: SplitSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """The source domains split among the clients: each client's rows.

    `rng` is the stream of hFedF's split. `mixed_domains` and `skewed_labels` have separate streams, one per domain, so
    that they do not change runs without them.

    Owners that the data say take the place of all that.

    Raises:
      UserError: a client left without data, a label skew that changes nothing, or groups of samples in a split that
        mixes domains or labels, which would tear them apart; owners beside keys that say how to deal.
    """
    if data.groups is not None and (how.homogeneity >= 0 or how.label_skew):
        key = "label_skew" if how.label_skew else "homogeneity"
        raise UserError(
            f"config.data.{key} got {getattr(how, key):g}, but samples are grouped, and this split draws single ones; "
            f"expected {0 if how.label_skew else -1}, or samples that are not grouped"
        )
    domains = checked_domains(data, sources)
    if data.owners is not None:
        check_not_dealt(how)
        return owned_rows(data.owners, domains, sources, data.groups)
    clients = how.clients or len(sources)
    mixing, skewing = (partial(generator, how, purpose=purpose) for purpose in (3, 4))
    if how.homogeneity < 0:
        rows = split_domains(
            domains,
            sources,
            clients=clients,
            domains_per_client=how.domains_per_client,
            rng=rng,
            names=data.domain_names,
            groups=data.groups,
        )
    else:
        rows = mixed_domains(domains, sources, clients=clients, homogeneity=how.homogeneity, streams=mixing)
    if how.label_skew:
        rows = skewed_labels(rows, data.domains, data.labels, alpha=how.label_skew, streams=skewing)
    return rows


def check_not_dealt(how: SplitSpec) -> None:
    """Raises a `UserError` for keys that say how samples are dealt, whose owners are given."""
    for key in sorted(DEALT):
        got, default = getattr(how, key), SplitSpec._field_defaults[key]
        if got != default:
            raise UserError(
                f"config.data.{key} got {got:g}, but the data say which client has each sample; expected {default:g}, "
                "or data without owners"
            )


def client_words(data: Domains, rows: np.ndarray, client: int) -> str:
    """A client in words, by its number, or by its name if it owns its rows."""
    if data.owners is None:
        return f"client {client}"
    return f"client '{printable(data.owners.names[data.owners.numbers[rows[0]]])}'"


def parts_of_clients(
    data: Domains, rows: Sequence[np.ndarray], how: SplitSpec, rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Each client's training, validation and test samples, of its rows; test samples of given splits alone. Raises like
    `hold_out` and `given_parts`."""
    each = list[Parts]()
    for client, own in enumerate(rows):
        whose = client_words(data, own, client)
        if data.splits is None:
            each.append((*hold_out(own, fraction=how.validation, rng=rng, whose=whose, groups=data.groups), nothing()))
        else:
            each.append(given_parts(data.splits, own, rng, whose, groups=data.groups, validation=how.validation))
    train, validation, test = (list(column) for column in zip(*each, strict=True))
    return train, validation, test


def given_parts(
    splits: Splits,
    rows: np.ndarray,
    rng: np.random.Generator,
    whose: str,
    *,
    groups: np.ndarray | None,
    validation: float = 0,
    test: float = 0,
) -> Parts:
    """The given parts of these rows, whose domains are trained on.

    Args:
      splits: of all samples. rows: positions, ascending.
      rng: draws what is not given. whose: the samples are, for error messages.
      groups: int `[samples]`, see `fdgjax.data.groups`; None for samples that are not grouped.
      validation, test: fractions of the training samples that are held out instead if no row is for it; 0 for none.

    Raises:
      UserError: no training samples, groups that are torn apart, or like `hold_out`.
    """
    train, held_out, tested = splits.of_source(rows)
    if not len(train):
        raise UserError(
            f"{whose} has {len(rows)} samples, of which the given splits have none for training; expected at least "
            "one; mend the splits, or exclude its domain"
        )
    holding_out = partial(hold_out, rng=rng, whose=whose, groups=groups)
    if test and not len(tested):
        train, tested = holding_out(train, fraction=test)
    if validation and not len(held_out):
        train, held_out = holding_out(train, fraction=validation)
    check_apart((train, held_out, tested), groups, whose)
    return train, held_out, tested


def unseen_samples(data: Domains, how: SplitSpec) -> tuple[np.ndarray, np.ndarray]:
    """The target's samples that are tested on, all of them unless some are given for tests, and others of it that are
    given for training.

    Raises:
      UserError: groups that are torn apart, or like `rows_of_domain`.
    """
    rows = rows_of_domain(data, data.domain_names.index(how.target))
    if data.splits is None:
        return rows, nothing()
    unseen, others = data.splits.of_target(rows)
    check_apart((unseen, others), data.groups, how.target)
    return (unseen, others) if len(unseen) else (rows, nothing())


def with_shots(
    data: Domains, parts: Partition, others: np.ndarray, how: SplitSpec, rng: np.random.Generator
) -> Partition:
    """The parts with `how.shots` samples of the target more at each client: of `others`, or, if there are none, of the
    test samples, which are fewer then. Raises like `few_shot`."""
    if not how.shots:
        return parts
    tests = not len(others)
    extra, left = few_shot(
        parts.target if tests else others,
        data.labels,
        clients=len(parts.train),
        shots=how.shots,
        rng=rng,
        tests=tests,
        groups=data.groups,
    )
    train = [np.concatenate(pair) for pair in zip(parts.train, extra, strict=True)]
    return parts._replace(train=train, target=left if tests else parts.target)


def one_client_each(data: Domains, domains: tuple[int, ...], how: SplitSpec) -> Partition:
    """A client for each of the domains, in their order, or for each owner, and nothing unseen."""
    if data.owners is None:
        each = [parts_of_domain(data, domain, how) for domain in domains]
    else:
        owned = owned_rows(data.owners, checked_domains(data, domains), domains, data.groups)
        each = [parts_of_owner(data, data.owners, rows, how) for rows in owned]
    train, validation, test = (list(column) for column in zip(*each, strict=True))
    return Partition(train, validation, test, target=nothing(), server=nothing())


def parts_of_domain(data: Domains, domain: int, how: SplitSpec) -> Parts:
    """A domain's training, validation and test samples; they depend on nothing but the domain and the seed."""
    return thirds(data, rows_of_domain(data, domain), generator(how, domain), data.domain_names[domain], how)


def parts_of_owner(data: Domains, owners: Owners, rows: np.ndarray, how: SplitSpec) -> Parts:
    """An owner's training, validation and test samples, of its rows, from a stream of its own."""
    rng = generator(how, int(owners.numbers[rows[0]]), purpose=6)
    return thirds(data, rows, rng, client_words(data, rows, 0), how)


def thirds(data: Domains, rows: np.ndarray, rng: np.random.Generator, whose: str, how: SplitSpec) -> Parts:
    """Training, validation and test samples among these rows; arguments and errors as those of `given_parts`, or of
    `three_parts` where no splits are given."""
    fractions = {"validation": how.validation, "test": how.test}
    if data.splits is not None:
        return given_parts(data.splits, rows, rng, whose, groups=data.groups, **fractions)
    return three_parts(rows, rng=rng, whose=whose, groups=data.groups, **fractions)


def generator(how: SplitSpec, domain: int, purpose: int = 1) -> np.random.Generator:
    """A random stream for each domain and purpose; `domain` may be the number of domains, for one stream more."""
    return np.random.default_rng(np.random.SeedSequence([how.seed, purpose, domain]))


def domains_in_use(data: Domains) -> np.ndarray:
    """The domain of each sample, int `[samples]`; -1 for samples that are in none of the given splits."""
    return data.domains if data.splits is None else np.where(data.splits.used, data.domains, -1)


def rows_of_domain(data: Domains, domain: int) -> np.ndarray:
    """Positions of a domain's samples, ascending; of given splits those that are in one. Raises like
    `checked_domains`."""
    return np.flatnonzero(checked_domains(data, [domain]) == domain)


def checked_domains(data: Domains, needed: Sequence[int]) -> np.ndarray:
    """`domains_in_use`; raises a `UserError` if the given splits have no sample of one of the domains that are
    needed."""
    used = domains_in_use(data)
    if data.splits is not None and (lacking := np.setdiff1d(needed, used)).size:
        raise UserError(
            f"the given splits have no sample of '{data.domain_names[lacking[0]]}'; expected some of each domain, or "
            "config.data.excluded with its name"
        )
    return used


def nothing() -> np.ndarray:
    """No positions."""
    return np.zeros(0, np.int64)
