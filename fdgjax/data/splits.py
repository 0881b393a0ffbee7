"""Splitting the samples: source domains among clients, held-out samples, a few shots of the target.

Every function is determined by its arguments and the state of `rng`.
"""

from collections.abc import Sequence

import numpy as np

from fdgjax.data.groups import equal_parts, one_of_each, random_parts
from fdgjax.data.sources.domains import Domains
from fdgjax.utils.errors import UserError, unknown


def source_domains(data: Domains, target: str, excluded: Sequence[str] = ()) -> tuple[int, ...]:
    """The indices of all domains but the target (leave one domain out; '' for none) and the excluded ones, in the data
    set's order.

    Raises:
      UserError: no domain has one of the names, the target is excluded, or no domain is left.
    """
    for kind, names in (("target domain", [target] if target else []), ("domain of data.excluded", excluded)):
        if wrong := [name for name in names if name not in data.domain_names]:
            raise unknown(kind, wrong[0], data.domain_names)
    if target in excluded:
        raise UserError(f"data.excluded got '{target}', which is data.target, too; expected other domains")
    sources = tuple(index for index, name in enumerate(data.domain_names) if name not in (target, *excluded))
    if not sources and excluded:
        raise UserError(f"data.excluded got {','.join(excluded)}, which leaves none to train on; expected fewer")
    if not sources:
        raise UserError(f"'{target}' is the only domain; expected at least two, of which one is left out")
    return sources


def split_domains(
    domains: np.ndarray,
    sources: Sequence[int],
    *,
    clients: int,
    domains_per_client: int,
    rng: np.random.Generator,
    names: Sequence[str] = (),
    groups: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Splits the source domains so that each client holds exactly `domains_per_client` of them (hFedF).

    hFedF v2 (C.8.1), Algorithm 5, for N clients, K source domains and d domains per client: with
    `a = floor(N d / K)` and `b = N d mod K`, each of the b largest domains is cut at random into a + 1 equal
    parts, each other into a. These N d parts are lined up, domain by domain, and dealt to the clients in turn,
    d to each. A domain has at most N parts, so N consecutive turns never give a client two parts of it: every
    client gets d different domains, and every part goes to a client.

    Where the paper's listing leaves room:
    - its loop deals the domains in their given order although the text says "randomly"; here their order is
      random. Clients are then numbered by the domains they hold, so that with d = 1 and N = K client i holds
      source i.
    - a = 0 (N d < K) would cut the smaller domains into no parts: the N d largest domains are used, one part
      each, and the others are left out, since assigning them would break "exactly d domains".
    - among domains of equal size the one that comes first in `sources` counts as larger.

    Args:
      domains: int `[samples]`, the domain of each sample.
      sources: K different domains to split.
      clients: N.
      domains_per_client: d.
      rng: determines the order of the domains and the assignment of samples.
      names: of all domains, for error messages.
      groups: int `[samples]`, which samples no two clients may share; None for samples that are not grouped.

    Returns:
      For each client its rows of the data set, ascending. No row is used twice; parts of a domain differ in
      size by at most one, with groups by at most the largest group.

    Raises:
      UserError: fewer than 1 client or domain, d > K, or a domain with too few samples or groups for its parts.
    """
    kinds = len(sources)
    if clients < 1:
        raise UserError(f"config.data.clients got {clients}; expected at least 1")
    if not 1 <= domains_per_client <= kinds:
        raise UserError(
            f"config.data.domains_per_client got {domains_per_client}; expected 1 to {kinds}, the source domains"
        )
    if len(set(sources)) != kinds:
        raise UserError(f"source domains {tuple(sources)} name a domain twice; expected each once")
    each, extra = divmod(clients * domains_per_client, kinds)
    rows = [np.flatnonzero(domains == source) for source in sources]
    largest_first = np.argsort([-len(of_domain) for of_domain in rows], kind="stable")
    parts_of = np.full(kinds, each)
    parts_of[largest_first[:extra]] += 1
    for source, of_domain, parts in zip(sources, rows, parts_of, strict=True):
        units = len(one_of_each(of_domain, groups))
        if units < parts:
            kind = "samples" if groups is None else "group(s) of samples"
            raise UserError(
                f"source domain {names[source] if names else source} has {units} {kind} for {parts} clients: "
                "a client would be left without data; use fewer clients or domains_per_client"
            )
    return _deal(rows, parts_of, clients, rng, groups)


def _deal(
    rows: Sequence[np.ndarray],
    parts_of: np.ndarray,
    clients: int,
    rng: np.random.Generator,
    groups: np.ndarray | None,
) -> list[np.ndarray]:
    in_a_row = [
        (int(index), part)
        for index in rng.permutation(len(rows))
        if parts_of[index]
        for part in equal_parts(rows[index], parts_of[index], rng, groups)
    ]
    # A stable sort: clients with the same domains keep the order in which they were dealt.
    hands = sorted(
        (in_a_row[client::clients] for client in range(clients)),
        key=lambda hand: sorted(held for held, _ in hand),
    )
    return [np.sort(np.concatenate([part for _, part in hand])) for hand in hands]


def hold_out(
    rows: np.ndarray,
    *,
    fraction: float,
    rng: np.random.Generator,
    whose: str = "a client",
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Holds out a random part of a client's samples: (training rows, validation rows), both ascending.

    Args:
      rows: the client's rows `[samples]`.
      fraction: fraction of the rows to hold out. Their number is rounded to the nearest integer, at least one and not
        all.
      rng: draws them. whose: the samples are, for error messages.
      groups: int `[samples]`, which samples are held out together or not at all, see `random_parts`; None for none.

    Raises:
      UserError: fewer than two rows or groups, or a fraction not strictly between 0 and 1.
    """
    if not 0.0 < fraction < 1.0:
        raise UserError(f"the held-out fraction got {fraction}; expected a number between 0 and 1, such as 0.1")
    if len(rows) < 2:
        raise UserError(
            f"{whose} has too few samples, {len(rows)}; expected at least 2, to hold one out; add samples, take fewer "
            "clients, or leave its domain or owner out"
        )
    held = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
    first, rest = random_parts(rows, [held], rng, groups, whose)
    return rest, first


def three_parts(
    rows: np.ndarray,
    *,
    validation: float,
    test: float,
    rng: np.random.Generator,
    whose: str = "a client",
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits a client's samples at random: (training rows, validation rows, test rows), all ascending (FDSE, A7.1).

    Args:
      rows: the client's rows `[samples]`.
      validation, test: fractions of the rows, rounded down as the published accuracies imply (Tables 2 and A9:
        DSLR's 80.00, 86.66 and 93.33 are 12, 13 and 14 of 15, a tenth of 157), but at least one row each.
      rng: draws them. whose: the samples are, for error messages.
      groups: int `[samples]`, which samples stay in one part, see `random_parts`; None for none.

    Raises:
      UserError: fewer than three rows or groups, or nothing left to train on.
    """
    # A floating-point error must not lose a row: 0.29 * 100 is 28.999...
    held, tested = (max(int(round(fraction * len(rows), 6)), 1) for fraction in (validation, test))
    if held + tested >= len(rows):
        raise UserError(
            f"{whose} has {len(rows)} samples: holding out {held} for validation and {tested} for tests leaves none "
            "to train on; use smaller fractions or more samples"
        )
    first, second, rest = random_parts(rows, [tested, held], rng, groups, whose)
    return rest, second, first


def few_shot(
    rows_of_target: np.ndarray,
    labels: np.ndarray,
    *,
    clients: int,
    shots: int,
    rng: np.random.Generator,
    tests: bool = True,
    groups: np.ndarray | None = None,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Gives each client a few target samples for training (hFedF v2, section "few-shot").

    The paper gives each client "a small number of target domain samples" and does not say how they are drawn. Here no
    sample goes to two clients, and a client's shots are spread over the classes as evenly as the target
    allows: the draw cycles through the classes in one random order, taking a random sample of each.

    Args:
      rows_of_target: the target domain's rows of the data set.
      labels: int `[samples]`, of the whole data set.
      clients: number of clients.
      shots: target samples per client; 0 gives empty arrays.
      rng: draws them.
      tests: whether what is left are the test samples, of which there must be one.
      groups: int `[samples]`; no sample is left of a group of which one is drawn. None for none.

    Returns:
      For each client its `shots` rows, and the rows that are left; all ascending.

    Raises:
      UserError: a negative number, or too few samples or groups.
    """
    if shots < 0 or clients < 1:
        raise UserError(
            f"config.data.shots got {shots} for {clients} clients; expected at least 0, and at least 1 client"
        )
    drawn, kept = clients * shots, " and one for tests" if tests else ""
    if drawn > len(rows_of_target) - (1 if tests else 0):
        raise UserError(
            f"config.data.shots got {shots} for each of {clients} clients, which need {drawn} of the target's samples"
            f"{kept}; expected at most the {len(rows_of_target)} that there are; use fewer shots or clients"
        )
    shuffled = rng.permutation(rows_of_target)
    of_class = labels[shuffled]
    turn = np.empty(len(shuffled), np.int64)  # the k-th sample of its class comes in the k-th turn
    for label in np.unique(of_class):
        turn[of_class == label] = np.arange(np.count_nonzero(of_class == label))
    class_order = rng.permutation(int(labels.max()) + 1)
    dealt = shuffled[np.lexsort((class_order[of_class], turn))]
    left = np.sort(dealt[drawn:])
    if groups is not None:
        left = left[~np.isin(groups[left], groups[dealt[:drawn]])]
    if tests and not len(left):
        raise UserError(
            f"config.data.shots got {shots} for each of {clients} clients, which are of all groups of the target's "
            "samples; expected one group that is left for tests; use fewer shots or clients"
        )
    return [np.sort(part) for part in dealt[:drawn].reshape(clients, shots)], left
