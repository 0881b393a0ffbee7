"""What a run prints before any training: the labels each client holds, and how variables are shared."""

from fdgjax.config import seeds_of
from fdgjax.data.splits import label_histogram
from fdgjax.experiment import Experiment
from fdgjax.variables import bytes_by_label, label_table


def label_summary(experiment: Experiment) -> str:
    """The number of variables and bytes with each label, one line per label in use."""
    table = label_table(experiment.shapes, experiment.method.label)
    sizes = bytes_by_label(experiment.shapes, experiment.method.label)
    counts = {label: sum(word == label for word in table.values()) for label in sizes}
    return "\n".join(
        f"{label:9s}{counts[label]:4d} variables  {sizes[label]:12,d} bytes" for label in sizes if counts[label]
    )


def histogram(experiment: Experiment) -> str:
    """Training labels per client, a table for each seed."""
    data, seeds = experiment.data, seeds_of(experiment.config)
    tables = [
        label_histogram(
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
