"""What a round releases about each of those whom differential privacy may protect."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fdgjax.data.federation import Federation
from fdgjax.engine.local import Batching
from fdgjax.engine.privacy import Exposure


def of_clients(clients_per_round: int, batching: Batching, federations: Sequence[Federation]) -> list[Exposure]:
    """Each round takes a fixed number of clients, 0 for all."""
    del batching
    count = len(federations[0].ids)
    return [Exposure("fixed", clients_per_round or count, count)]


def of_samples(clients_per_round: int, batching: Batching, federations: Sequence[Federation]) -> list[Exposure]:
    """Each client takes samples in every step, as if it took part in every round."""
    del clients_per_round
    sizes = {int(size) for one in federations for size in np.asarray(one.train.length)}
    return [
        Exposure("poisson", min(batching.batch_size, size), size, batching.epochs * batching.steps(size))
        for size in sorted(sizes)
        if size
    ]


EXPOSURES: Mapping[str, Callable[[int, Batching, Sequence[Federation]], list[Exposure]]] = {
    "client": of_clients,
    "sample": of_samples,
}
"""By who is protected: `(clients_per_round, batching, federations of the seeds) -> exposures`."""
