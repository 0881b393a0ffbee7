"""What each client contributes: Shapley values of accuracies over coalitions, and leave-one-out influence.

For clients N, K of them, and the value v(S) of the federation of the clients in S (Shapley, 1953):

    phi_i = 1/K sum_{S subset of N without i} (K - 1 choose |S|)^-1 (v(S and i) - v(S))
          = the mean over all orders of the clients of v(P_i and i) - v(P_i), P_i being those before i

They are the only values that are efficient (their sum is v(N) - v(nobody)), symmetric (clients that add the same to
every coalition have the same), null for a client that adds nothing to any, and additive in v.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Coalition = frozenset[int]
"""Numbers of clients."""
Values = Mapping[Coalition, np.ndarray]
"""v of coalitions, arrays of one shape; of the empty one, too."""


def all_coalitions(clients: int) -> list[Coalition]:
    """The `2^K - 1` coalitions with a client, the smallest first."""
    return [
        frozenset(chosen) for size in range(1, clients + 1) for chosen in itertools.combinations(range(clients), size)
    ]


def prefixes(orders: Iterable[Sequence[int]]) -> list[Coalition]:
    """The coalitions with a client that orders of clients pass through, each once, the smallest first."""
    found = dict.fromkeys(frozenset(order[: i + 1]) for order in orders for i in range(len(order)))
    return sorted(found, key=lambda one: (len(one), sorted(one)))


def shapley_values(values: Values, clients: int) -> np.ndarray:
    """phi of each client, `[clients, ...]`.

    Args:
      values: of all coalitions and of the empty one.
      clients: K.
    """

    def of_client(i: int) -> np.ndarray:
        without = [one for one in ({frozenset[int]()} | set(all_coalitions(clients))) if i not in one]
        gains = [(values[one | {i}] - values[one]) / math.comb(clients - 1, len(one)) for one in without]
        total: np.ndarray = np.sum(gains, axis=0)
        return total / clients

    return np.stack([of_client(i) for i in range(clients)])


def shapley_of_orders(values: Values, orders: Sequence[Sequence[int]]) -> np.ndarray:
    """The mean gain of each client over some orders of all clients, `[clients, ...]`: for orders drawn at random an
    unbiased estimate of phi, and phi for all of them.

    Args:
      values: of the `prefixes` of the orders and of the empty coalition.
      orders: permutations of the clients.
    """

    def gain(order: list[int], i: int) -> np.ndarray:
        before = frozenset(order[: order.index(i)])
        return values[before | {i}] - values[before]

    gains = [np.stack([gain(list(order), i) for i in sorted(order)]) for order in orders]
    found: np.ndarray = np.mean(gains, axis=0)
    return found


def leave_one_out(values: Values, clients: int) -> np.ndarray:
    """`v(N) - v(N without i)` of each client, `[clients, ...]`."""
    everybody = frozenset(range(clients))
    return np.stack([values[everybody] - values[everybody - {i}] for i in range(clients)])
