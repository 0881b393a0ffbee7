"""Figures drawn from the records of methods and probes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.statistics import by_point
from fdgjax.report.drawing import (
    REFERENCE,
    Figure,
    Key,
    OpenPanel,
    colour,
    dashes,
    line,
    panels_of,
    round_axis,
    sheet,
)
from fdgjax.report.figures import diagonal, draw_panels, figure_of, percent_axis, side_by_side, table_of
from fdgjax.report.folders import Seed
from fdgjax.report.reading import Run

MOST_NAMED = 8
"""With more clients than this, the legend does not name them."""

PREFIX = "coefficients/"
DEFENCES: Mapping[str, str] = {"defence/share": "share in the robust centre", "defence/factor": "factor of clipping"}
"""The records of a defence that are drawn like coefficients."""


def clients_seen(run: Run) -> int:
    """The number of clients, as far as the rounds' participants show it: their highest number plus one."""
    return 1 + max((who for seed in run.seeds for record in seed.records for who in record["participants"]), default=-1)


def weights_of(seed: Seed, clients: int) -> dict[str, np.ndarray]:
    """Aggregation weights `[rounds, clients]` by their name, the mean over layers where each has its own; NaN for a
    client that did not take part."""
    found: dict[str, np.ndarray] = {}
    for row, record in enumerate(seed.records):
        for name, vectors in grouped(record).items():
            table = found.setdefault(name, np.full((len(seed.records), clients), np.nan))
            table[row, record["participants"]] = np.mean(vectors, axis=0)
    return found


def grouped(record: Record) -> dict[str, list[list[float]]]:
    """The coefficients of a record that have one number for each participant, by the first part of their name, those
    of a defence among them; shares of discarded gradients are left out."""
    found: dict[str, list[list[float]]] = {}
    for key, value in record.items():
        name = DEFENCES.get(key, key.removeprefix(PREFIX).split("/")[0])
        flat = isinstance(value, list) and all(isinstance(one, int | float) for one in value)
        if (
            (key in DEFENCES or key.startswith(PREFIX))
            and name != "discarded"
            and flat
            and len(value) == len(record["participants"])
        ):
            found.setdefault(name, []).append(value)
    return found


def weights_over_seeds(run: Run) -> dict[str, np.ndarray]:
    """The mean over seeds of `weights_of`, up to the last round that all have finished; constant ones left out."""
    each = [weights_of(seed, clients_seen(run)) for seed in run.seeds if seed.records]
    found = {}
    for name in dict.fromkeys(name for one in each for name in one):
        tables = [one[name] for one in each if name in one]
        shortest = min(map(len, tables))
        mean, _ = by_point(np.stack([table[:shortest].ravel() for table in tables]))
        columns = mean.reshape(shortest, -1).T
        spans = [np.ptp(column[np.isfinite(column)]) for column in columns if np.isfinite(column).any()]
        if max(spans, default=0) > 1e-4:
            found[name] = columns.T
    return found


def aggregation_weights(runs: Sequence[Run]) -> Figure | None:
    """Each client's weight against rounds, of runs whose weights change (hFedF v2, figure 5a)."""
    panels: list[OpenPanel] = []
    most, named = 0, set[tuple[str, ...]]()
    for run in runs:
        for name, table in weights_over_seeds(run).items():
            most = max(most, table.shape[1])
            named.add(names_of_clients(run))
            took_part = next(len(seed.records[0]["participants"]) for seed in run.seeds if seed.records)
            with sheet() as (drawing, axes):
                for client, weights in enumerate(table.T):
                    axes.plot(np.arange(1, len(table) + 1), weights, color=colour(client), linestyle=dashes(client))
                axes.axhline(1 / took_part, **REFERENCE)
                round_axis(axes)
                axes.set_ylabel("weight of each client")
                title = ", ".join([run.label, run.panel, *([name] if name != "weights" else [])])
                legend = tuple(client_keys(table.shape[1], names_of_clients(run)))
                panels.append(OpenPanel(title, run.name, f"weights-{len(panels)}", drawing, axes, legend))
    alike = named.pop() if len(named) == 1 else ()
    return Figure(panels_of(panels), client_keys(most, alike)) if panels else None


def names_of_clients(run: Run) -> tuple[str, ...]:
    """The names of a run's clients, as far as its description has them."""
    return next((folder.data.client_names for folder in run.folders if folder.data), ())


def client_keys(clients: int, names: Sequence[str] = ()) -> list[Key]:
    """The legend of so many clients, by their names if they have some; nothing for more than `MOST_NAMED`."""
    if clients > MOST_NAMED:
        return []
    found = names if len(names) == clients else [f"client {i}" for i in range(clients)]
    return [Key(name, number) for number, name in enumerate(found)]


def discard_rate_figure(runs: Sequence[Run]) -> Figure | None:
    """The share of gradients that clients drop against rounds, mean over clients (FedGaLA)."""

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        for values, number in zip(found, numbers, strict=True):
            line(axes, np.arange(1, values.shape[1] + 1), values, number)
        round_axis(axes)
        percent_axis(axes, "discarded (%)")

    return figure_of(runs, "discarded", discard_rates, draw)


def discard_rates(run: Run) -> np.ndarray | None:
    """The mean over clients of the share of gradients that each drops `[seeds, rounds]`, NaN in rounds that a seed has
    not reached; None where nothing is dropped."""
    each = [[np.mean(r[f"{PREFIX}discarded"]) for r in s.records if f"{PREFIX}discarded" in r] for s in run.seeds]
    each = [one for one in each if one]
    if not each or not np.any(np.concatenate(each)):
        return None
    longest = max(map(len, each))
    return np.asarray([np.pad(one, (0, longest - len(one)), constant_values=np.nan) for one in each])


Accuracies = tuple[np.ndarray, np.ndarray]
"""Percentages of labels in ascending order, and a probe's accuracies `[seeds, percentages]`, NaN where missing."""

UNTRAINED: Mapping[str, Any] = {"pixel_probe": {}, "random_encoder_probe": {"linestyle": (0, (5, 3))}}
"""Keys of the first record, for probes without any training of the encoder, and their line styles."""


def probe_by_labels(runs: Sequence[Run]) -> Figure | None:
    """Probe accuracy against the share of labels, beside probes on raw pixels and on the untrained encoder."""

    def curves(run: Run) -> Any:
        each = run.values("probe_by_percent")
        if len({percent for one in each for percent in one}) < 2:
            return None
        first = [seed.records[0] for seed in run.seeds if seed.records]
        untrained = {name: [record[name] for record in first if name in record] for name in UNTRAINED}
        return by_percent(each), {name: by_percent(known) for name, known in untrained.items() if known}

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        untrained = {name: one for _, known in found for name, one in known.items()}
        draw_probes(axes, [trained for trained, _ in found], numbers, [untrained.get(name) for name in UNTRAINED])

    return figure_of(runs, "probes", curves, draw)


def by_percent(each: Sequence[Mapping[str, float]]) -> Accuracies:
    """Accuracies from each seed's by their percentage."""
    percents = sorted({percent for one in each for percent in one}, key=int)
    return np.asarray([int(percent) for percent in percents]), table_of(each, percents)


def draw_probes(
    axes: Any, trained: Sequence[Accuracies], numbers: Sequence[int], untrained: Sequence[Accuracies | None]
) -> None:
    """Probe accuracy against the share of labels.

    Args:
      axes: to draw on.
      trained: of each run. numbers: their colours.
      untrained: of raw pixels and of the untrained encoder, in the order of `UNTRAINED`; None for what is not known.
    """
    for (percents, values), number in zip(trained, numbers, strict=True):
        line(axes, percents, values, number)
    for known, style in zip(untrained, UNTRAINED.values(), strict=True):
        if known:
            axes.plot(known[0], by_point(known[1])[0], **REFERENCE | style)
    axes.set_xlabel("samples with labels (%)")
    percent_axis(axes, "probe accuracy (%)")


def bins_of(run: Run) -> dict[str, np.ndarray] | None:
    """Samples by confidence, summed over seeds; None where there are none."""
    each = run.values("calibration")
    if not each:
        return None
    return {name: np.sum([one[name] for one in each], axis=0) for name in ("count", "correct", "confidence")}


def reliability(runs: Sequence[Run]) -> Figure | None:
    """Accuracy against confidence (Guo et al., 2017, figure 1)."""

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        diagonal(axes, "confidence (%)", "accuracy (%)")
        for bins, number in zip(found, numbers, strict=True):
            # The accuracy in a bin of a few samples is noise.
            some = bins["count"] >= max(5, 0.005 * bins["count"].sum())
            count = bins["count"][some]
            x, y = bins["confidence"][some] / count, bins["correct"][some] / count
            axes.plot(x, y, color=colour(number), linestyle=dashes(number), marker="o")

    return figure_of(runs, "reliability", bins_of, draw)


def confidence(runs: Sequence[Run]) -> Figure | None:
    """Histograms of the confidence of right and of wrong predictions (hFedF v2, figure 6b)."""
    both = []
    for name, of in (("right", lambda bins: bins["correct"]), ("wrong", lambda bins: bins["count"] - bins["correct"])):

        def draw(axes: Any, found: list[Any], numbers: list[int], of: Any = of) -> None:
            for bins, number in zip(found, numbers, strict=True):
                counts = of(bins)
                edges = np.linspace(0, 1, len(counts) + 1)
                share = counts / max(counts.sum(), 1)
                axes.stairs(share, edges, color=colour(number), linestyle=dashes(number), linewidth=1.4)
                axes.stairs(share, edges, color=colour(number), alpha=0.08, fill=True)
            percent_axis(axes, "confidence (%)", "x")
            percent_axis(axes, "predictions (%)")

        both.append(draw_panels(runs, f"confidence-{name}", bins_of, draw, f"{name}, "))
    return side_by_side(runs, both)
