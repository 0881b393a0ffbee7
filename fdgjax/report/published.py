"""Papers' published figures for a report's runs: those of the spec's cell that is the same experiment."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict

from fdgjax.config import INCIDENTAL, read_config, to_plain
from fdgjax.report.reading import Run
from fdgjax.report.settings import settings_of
from fdgjax.sweeps.cells import read_published, read_spec
from fdgjax.sweeps.papers import EXPERIMENTS

ANY = frozenset({"eval_every", "data.digest", "data.scaling", "data.split_seed", "model.pretrained"})
"""Keys in which a run may differ from the cell: when it is evaluated, what the cell does not say of the samples, what
follows from other keys, which split of the kind it has, and where the weights lie from which it starts."""


class Known(NamedTuple):
    """An experiment by its keys, whether its network is pretrained, and its published figures in [0, 1]."""

    keys: Mapping[str, Any]
    pretrained: bool
    figures: Mapping[str, float]


def with_published(runs: Sequence[Run]) -> list[Run]:
    """The runs, each with the figures that a paper prints for the same experiment at the paper's scale; the seeds and
    their number may differ."""
    known = list(published_cells())
    return [run._replace(published=figures_for(settings_of(run.folders[0]), known)) for run in runs]


def published_cells() -> Iterator[Known]:
    """The cells of all papers' tables that have figures, at the paper's scale."""
    for spec in EXPERIMENTS.values():
        figures = read_published(spec)
        for cell in read_spec(spec, "paper") if figures else ():
            own = {name: each.mean / 100 for (of, name), each in figures.items() if of == cell.name}
            if own:
                flat = flatten_dict(to_plain(read_config(cell.config)), sep=".")
                keys = {key: value for key, value in flat.items() if key not in INCIDENTAL}
                yield Known(keys, cell.pretrained, own)


def figures_for(keys: Mapping[str, Any], known: Sequence[Known]) -> dict[str, float]:
    """The figures of the first experiment with these keys, of which some may be missing."""
    pretrained = bool(keys.get("model.pretrained"))
    compared = {key: value for key, value in keys.items() if key not in ANY}
    for one in known:
        if one.pretrained == pretrained and all(one.keys.get(key) == value for key, value in compared.items()):
            return dict(one.figures)
    return {}
