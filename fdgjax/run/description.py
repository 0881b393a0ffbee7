"""What a run prints before training: each client's labels, and how variables are shared."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from fdgjax.data.label_tables import label_histogram, label_means
from fdgjax.data.protocol_parts import client_words
from fdgjax.experiments import Experiment, owner_names
from fdgjax.methods import METHODS
from fdgjax.utils.errors import few, printable
from fdgjax.utils.variables import FROZEN, bytes_by_label, bytes_of, flatten, label_table


def labels_with_frozen(experiment: Experiment) -> dict[str, str]:
    """How every variable of the network is shared: its label by path, or `frozen` in a frozen trunk."""
    frozen = flatten(experiment.trunk.variables) if experiment.trunk else {}
    return dict.fromkeys(frozen, FROZEN) | label_table(experiment.shapes, experiment.method.label)


def label_summary(experiment: Experiment) -> str:
    """The number of variables and bytes for each label in use, one line per label."""
    table = labels_with_frozen(experiment)
    sizes = dict(bytes_by_label(experiment.shapes, experiment.method.label))
    sizes[FROZEN] = bytes_of(experiment.trunk.variables) if experiment.trunk else 0
    counts = {label: sum(word == label for word in table.values()) for label in sizes}
    return "\n".join(
        f"{label:9s}{counts[label]:4d} variables  {sizes[label]:12,d} bytes" for label in sizes if counts[label]
    )


def histogram(experiment: Experiment) -> str:
    """The number of training samples of each class per client, or their numeric labels' mean and deviation, as a table
    for each seed."""
    data, seeds = experiment.data, experiment.seeds
    tabulated: Callable[..., str] = label_means if data.numeric else label_histogram
    tables = [
        tabulated(
            data.labels,
            parts.train,
            data.class_names,
            domains=data.domains,
            domain_names=data.domain_names,
            server_rows=parts.server,
            client_names=[printable(name) for name in owner_names(data, parts)],
        )
        for parts in experiment.parts
    ]
    if len(seeds) == 1:
        return tables[0]
    return "\n".join(f"seed {seed}\n{table}" for seed, table in zip(seeds, tables, strict=True))


def notes(experiment: Experiment) -> list[str]:
    """What the table of samples does not show, one line each: samples of the training domains that no client has,
    clients, and domains, without samples for tests where others have some, and classes that are tested and that nobody
    trains on; of the first seed."""
    data, parts = experiment.data, experiment.parts[0]
    given = np.concatenate([*parts.train, *parts.validation, *parts.test, parts.target, parts.server])
    unused = np.ones(len(data.domains), bool) if data.splits is None else data.splits.used.copy()
    unused[given] = False
    how = experiment.split_specs[0]
    left_out = {how.target, how.server, *how.excluded}
    lost = by_name(data.domain_names, data.domains[unused], left_out)
    lines = []
    if lost:
        lines.append(
            f"no client has {lost}: fewer clients than domains, each of which is dealt to one; "
            "config.data.homogeneity=0 deals the samples of all, config.data.clients=0 takes a client for each"
        )
    held, tested = (np.unique(data.domains[np.concatenate(rows)]) for rows in (parts.validation, parts.test))
    if len(tested):
        clients = enumerate(zip(parts.train, parts.test, strict=True))
        untested = [client_words(data, rows, client) for client, (rows, own) in clients if not len(own)]
        untested += [data.domain_names[place] for place in np.setdiff1d(held, tested)]
        if untested:
            lines.append(f"no samples for tests: {few(untested)}, without an accuracy of its own as others have")
    if not data.numeric and not METHODS[experiment.config.method.name].unlabelled:
        learnt = np.unique(data.labels[parts.server if len(parts.server) else np.concatenate(parts.train)])
        tested = data.labels[np.concatenate([parts.target, *parts.test])]
        if unknown := by_name(data.class_names, tested[~np.isin(tested, learnt)], set()):
            lines.append(f"nobody trains on classes of the test samples: {unknown}, all of which will be wrong")
    return [printable(line) for line in lines]


def by_name(names: Sequence[str], places: np.ndarray, left_out: Collection[str]) -> str:
    """How many samples each name has, such as `12 of photo, 7 of sketch`, the others left out."""
    counts = zip(names, np.bincount(places, minlength=len(names)), strict=True)
    return ", ".join(f"{count:,} of {name}" for name, count in counts if count and name not in left_out)
