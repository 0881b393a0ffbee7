"""Heterogeneous splits: how far clients differ in their domains (lambda), and in their labels of a domain (alpha).

Every function is determined by its arguments and its random streams. Each domain has a stream of its own, so that which
of its samples go where does not depend on another domain's labels.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fdgjax.utils.errors import UserError

Streams = Callable[[int], np.random.Generator]
"""A domain's own random stream."""


def mixed_domains(
    domains: np.ndarray, sources: Sequence[int], *, clients: int, homogeneity: float, streams: Streams
) -> list[np.ndarray]:
    """Deals the source domains to any number of clients, from one domain each to the same mixture for all.

    Of domain d, with n_d samples, client i of N gets

        n_id = (1 - lambda) a_id + lambda n_d / N

    with a_id the `shares` of lambda = 0, rounded so that every sample goes to one client (largest remainders, ties to
    the first client). At lambda = 1 all clients have the same mixture of domains, up to one sample a domain.

    Args:
      domains: int `[samples]`, the domain of each sample.
      sources: K different domains to deal.
      clients: N, any number.
      homogeneity: lambda, in [0, 1].
      streams: decide which samples; the numbers depend on the domains' sizes, N and lambda alone.

    Returns:
      For each client its rows of the data set, ascending.

    Raises:
      UserError: fewer than one client, lambda out of range, or a client that would have no sample.

    References:
      Bai, Bagchi and Inouye, "Benchmarking algorithms for federated domain generalization", ICLR 2024,
      "heterogeneous partitioning" and official code; their rounding gives the samples that are left to the first
      clients, whatever they hold.
    """
    if clients < 1:
        raise UserError(f"clients is {clients}: there must be at least 1")
    if not 0 <= homogeneity <= 1:
        raise UserError(f"homogeneity is {homogeneity}: give a number from 0 (few domains a client) to 1 (all alike)")
    rows = [np.flatnonzero(domains == source) for source in sources]
    sizes = np.array([len(of_domain) for of_domain in rows])
    exact = (1 - homogeneity) * shares(sizes, clients) + homogeneity * sizes / clients
    counts = np.stack([rounded(column, size) for column, size in zip(exact.T, sizes, strict=True)], axis=1)
    if not counts.sum(axis=1).all():
        raise UserError(
            f"{clients} clients share {sizes.sum()} samples of {len(rows)} domains with homogeneity {homogeneity:g}: "
            f"client {int(np.argmin(counts.sum(axis=1)))} would be left without data; use fewer clients"
        )
    dealt = [
        np.split(streams(source).permutation(of_domain), np.cumsum(column)[:-1])
        for source, of_domain, column in zip(sources, rows, counts.T, strict=True)
    ]
    return [np.sort(np.concatenate(hand)) for hand in zip(*dealt, strict=True)]


def shares(sizes: np.ndarray, clients: int) -> np.ndarray:
    """a_id, the samples of each domain at each client at lambda = 0, `[clients, domains]`, before rounding.

    With at least as many clients as domains each client has one domain: clients are given to domains one by one, each
    to the domain with the most samples a client so far, and share it equally; they are numbered by their domains. With
    fewer clients each domain is at one client: domains go, the largest first, to the client with the fewest samples.
    """
    kinds = len(sizes)
    holds = np.zeros((clients, kinds))
    if clients < kinds:
        for domain in np.argsort(-sizes, kind="stable"):
            holds[np.argmin(holds @ sizes), domain] = 1
        return holds * sizes
    holders = np.ones(kinds, np.int64)
    for _ in range(clients - kinds):
        holders[np.argmax(sizes / holders)] += 1
    holds[np.arange(clients), np.repeat(np.arange(kinds), holders)] = 1
    return holds * sizes / holders


def rounded(exact: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that add up to `total`, each next to its exact one (largest remainders)."""
    # 1e-6 of a sample is an error of rounding, not a remainder.
    whole = np.floor(exact + 1e-6).astype(np.int64)
    missing = int(total - whole.sum())
    largest_first = np.argsort(-np.round(exact - whole, 6), kind="stable")
    whole[largest_first[:missing]] += 1
    return whole


def skewed_labels(
    rows: Sequence[np.ndarray], domains: np.ndarray, labels: np.ndarray, *, alpha: float, streams: Streams
) -> list[np.ndarray]:
    """The same clients with the same number of samples of each domain, but with other labels of it.

    Client i's labels of domain d follow `q_id ~ Dirichlet(alpha p_d)`, p_d the domain's own share of each class: the
    smaller alpha, the fewer classes; as alpha grows, q_id tends to p_d. Samples are drawn without replacement, client
    by client in a random order; where a class is used up, q_id is renormalised over the others. So every sample is at
    exactly one client, and the last one of a domain takes what is left.

    Args:
      rows: each client's rows.
      domains, labels: int `[samples]`, of the whole data set.
      alpha: above 0.
      streams: decide the draws of a domain, which no other domain's labels change.

    Returns:
      For each client its rows, ascending.

    Raises:
      UserError: alpha not above 0, or no domain with two clients, where nothing could differ.

    References:
      Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual classification",
      2019, section 2; there are no domains in it.
    """
    if not 0 < alpha < np.inf:
        raise UserError(f"label_skew is {alpha}: give a number above 0, such as 0.5")
    present = np.unique(domains[np.concatenate(rows)])
    held = [[of_client[domains[of_client] == domain] for of_client in rows] for domain in present]
    if all(sum(len(part) > 0 for part in parts) < 2 for parts in held):
        raise UserError(
            f"label_skew is {alpha:g}, but every domain is at one client, which has all its labels; expected 0, or "
            "more clients than source domains"
        )
    dealt = [
        deal_labels(parts, labels, alpha, streams(int(domain))) for domain, parts in zip(present, held, strict=True)
    ]
    return [np.sort(np.concatenate(hand)) for hand in zip(*dealt, strict=True)]


def deal_labels(
    parts: Sequence[np.ndarray], labels: np.ndarray, alpha: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """One domain's samples dealt anew, to each client as many as it has."""
    pool = rng.permutation(np.concatenate(parts))
    classes, of_sample = np.unique(labels[pool], return_inverse=True)
    piles = [list(pool[of_sample == label]) for label in range(len(classes))]
    prior = np.bincount(of_sample) / len(pool)
    dealt = [np.zeros(0, np.int64) for _ in parts]
    for client in rng.permutation(len(parts)):
        wish = rng.dirichlet(alpha * prior)
        counts = drawn(len(parts[client]), wish, np.array([len(pile) for pile in piles]), rng)
        own = [pile.pop() for pile, count in zip(piles, counts, strict=True) for _ in range(count)]
        dealt[client] = np.array(own, np.int64)
    return dealt


def drawn(count: int, wish: np.ndarray, left: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The numbers of samples of each class among `count` drawn one by one by `wish`, of which only `left` are there."""
    taken = np.zeros_like(left)
    while count:
        there = left > taken
        chances = np.where(there, wish, 0.0)
        # A wish may be 0 in floating point for all classes that are left.
        chances = chances if chances.sum() > 0 else np.where(there, left - taken, 0).astype(np.float64)
        more = np.minimum(rng.multinomial(count, chances / chances.sum()), left - taken)
        taken += more
        count -= int(more.sum())
    return taken
