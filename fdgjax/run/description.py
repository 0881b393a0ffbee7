"""What a run prints before training: each client's labels, and how variables are shared."""

from collections.abc import Callable

from fdgjax.data.splits import label_histogram, label_means
from fdgjax.experiments import Experiment
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
        )
        for parts in experiment.parts
    ]
    if len(seeds) == 1:
        return tables[0]
    return "\n".join(f"seed {seed}\n{table}" for seed, table in zip(seeds, tables, strict=True))
