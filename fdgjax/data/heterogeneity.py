"""Heterogeneous splits: how far clients differ in their domains (lambda) and in their labels within a domain (alpha).

Every function is determined by its arguments and its random streams. Each domain has its own stream, so that the
assignment of its samples to clients does not depend on another domain's labels.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fdgjax.utils.errors import UserError

Streams = Callable[[int], np.random.Generator]
"""A domain's own random stream."""


def mixed_domains(
    domains: np.ndarray, sources: Sequence[int], *, clients: int, homogeneity: float, streams: Streams
) -> list[np.ndarray]:
    """Splits the source domains among any number of clients, from one domain per client to the same mixture for all.

    Of domain d, with n_d samples, client i of N gets

        n_id = (1 - lambda) a_id + lambda n_d / N

    samples, with a_id the number at lambda = 0 (`shares`). The n_id are rounded so that every sample goes to exactly
    one client (largest remainders, ties to the first client). At lambda = 1 all clients have the same mixture of
    domains, up to one sample per domain.

    Args:
      domains: int `[samples]`, the domain of each sample.
      sources: K different domains to deal.
      clients: N, any number.
      homogeneity: lambda, in [0, 1].
      streams: determine which samples a client gets; how many depends only on the domains' sizes, N and lambda.

    Returns:
      For each client its rows of the data set, ascending.

    Raises:
      UserError: fewer than one client, lambda out of range, or a client that would have no sample.

    References:
      Bai, Bagchi and Inouye, "Benchmarking algorithms for federated domain generalization", ICLR 2024,
      "heterogeneous partitioning" and official code; their code gives the samples left over by rounding to the first
      clients instead, whatever those hold.
    """
    if clients < 1:
        raise UserError(f"config.data.clients got {clients}; expected at least 1")
    if not 0 <= homogeneity <= 1:
        raise UserError(
            f"config.data.homogeneity got {homogeneity}; expected 0 (few domains a client) to 1 (all alike)"
        )
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
    """a_id, the number of samples of each domain at each client for lambda = 0, `[clients, domains]`, before rounding.

    With at least as many clients as domains, each client has one domain. Each additional client goes to the domain with
    the most samples per client so far. A domain's clients share it equally, and clients are numbered in the order of
    their domains. With fewer clients than domains, each domain is at one client: domains are assigned, the largest
    first, to the client with the fewest samples so far.
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
    """Rounds numbers up or down to integers that add up to `total` (method of largest remainders)."""
    whole = np.floor(exact).astype(np.int64)
    missing = int(total - whole.sum())
    # 1e-6 of a sample is a floating-point error, which must not decide between equal remainders.
    largest_first = np.argsort(-np.round(exact - whole, 6), kind="stable")
    whole[largest_first[:missing]] += 1
    return whole


def skewed_labels(
    rows: Sequence[np.ndarray], domains: np.ndarray, labels: np.ndarray, *, alpha: float, streams: Streams
) -> list[np.ndarray]:
    """Redistributes each domain's samples among its clients with skewed labels; each client keeps its number of samples
    per domain.

    Client i's labels in domain d follow `q_id ~ Dirichlet(alpha p_d)`, with p_d the domain's class frequencies: the
    smaller alpha, the fewer classes; as alpha grows, q_id tends to p_d. Samples are drawn without replacement, client
    by client in a random order; once a class is used up, q_id is renormalised over the others. So every sample is at
    exactly one client, and a domain's last client gets the remaining samples.

    Args:
      rows: each client's rows.
      domains, labels: int `[samples]`, of the whole data set.
      alpha: above 0.
      streams: determine each domain's draws, independently of the other domains' labels.

    Returns:
      For each client its rows, ascending.

    Raises:
      UserError: alpha not above 0, or no domain shared by two clients, so that a skew would change nothing.

    References:
      Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual classification",
      2019, section 2, which has no domains.
    """
    if not 0 < alpha < np.inf:
        raise UserError(f"config.data.label_skew got {alpha}; expected a number above 0, such as 0.5")
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
    """Redistributes one domain's samples; each client gets as many as it had."""
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
    """Draws `count` samples with class probabilities `wish`, at most `left` of each class; returns how many of each."""
    taken = np.zeros_like(left)
    while count:
        there = left > taken
        chances = np.where(there, wish, 0.0)
        # `wish` may underflow to 0 for all remaining classes.
        chances = chances if chances.sum() > 0 else np.where(there, left - taken, 0).astype(np.float64)
        more = np.minimum(rng.multinomial(count, chances / chances.sum()), left - taken)
        taken += more
        count -= int(more.sum())
    return taken
