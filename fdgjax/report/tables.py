"""The tables of a report: statistics over seeds, independent of the output format."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation import HEADLINES, is_evaluated
from fdgjax.evaluation.figure_kinds import larger_is_better
from fdgjax.evaluation.statistics import EQUAL, Spread, Values, over_targets, ranking, spread
from fdgjax.report.reading import EVERY_DOMAIN, Run, by_panel, by_series, marked_name, names_in

MAIN = ("ood_accuracy", "avg_accuracy", "probe_accuracy", "id_accuracy")
"""The figures that runs are compared by: of each run the first that it has."""
ACCURACIES = tuple(name for name in dict.fromkeys((*MAIN, *HEADLINES)) if name.endswith("accuracy"))
"""The accuracies that runs are ranked by."""


class Estimate(NamedTuple):
    """A figure of one seed, with the ends of its interval over samples."""

    mean: float
    low: float
    high: float


Cell = str | float | int | Spread | Estimate | None


class Column(NamedTuple):
    """A column.

    key: its name in files. title: for readers. kind: the format of its values, `text` or an entry of `formats.NUMBERS`.
    sense: 1 where larger values are better, -1 where smaller ones are, 0 where rows are not compared; of a table with a
    column `figure` 1, as each row's figure says it.
    """

    key: str
    title: str
    kind: str = "text"
    sense: int = 0


class Table(NamedTuple):
    """name: of its files. title, note: what it shows. rows: a cell for each column, None for nothing. best: the columns
    in which rows must agree to be compared; of these LaTeX has the best in bold. near: by row and key of the column the
    cells that are not told apart from the best, which LaTeX underlines."""

    name: str
    title: str
    note: str
    columns: list[Column]
    rows: list[list[Cell]]
    best: tuple[str, ...] = ()
    near: frozenset[tuple[int, str]] = frozenset()


def main_figure(run: Run) -> str:
    """The name of the figure that the run is compared by; '' for a run without any."""
    return next((name for name in MAIN if run.values(name)), "")


def recorded_bytes(run: Run) -> tuple[int, int] | None:
    """Bytes that all clients of a round send and receive; None where they are not known."""
    up, down = run.facts.get("bytes_up_per_round"), run.facts.get("bytes_down_per_round")
    return None if up is None or down is None else (up, down)


def rounds_done(run: Run) -> int:
    """The most rounds that any seed has finished."""
    return max((len(seed.records) for seed in run.seeds), default=0)


SCOPE_TITLES = {
    "id": "id",
    "id_all": "id, pooled",
    "ood": "ood",
    "ood_adapted": "ood adapted",
    "avg": "AVG",
    "all": "ALL",
    "worst_domain": "worst domain",
}
"""The scopes of figures, with their titles."""
WHO = [Column("method", "method"), Column("panel", "tested on")]
"""The columns that identify the run of a row."""


def who(run: Run) -> list[Cell]:
    """The cells of `WHO`."""
    return [run.label, run.panel]


def results(runs: Sequence[Run]) -> Table:
    """The figures of the reported round, and their cost."""
    named = {
        **HEADLINES,
        "worst_domain_accuracy": "worst domain",
        "ece": "calibration error",
        "id_ece": "id calibration error",
    }
    shown = {name: title for name, title in named.items() if any(run.values(name) for run in runs)}
    rows = []
    for run in runs:
        traffic, done = recorded_bytes(run), rounds_done(run)
        up, down = (None, None) if traffic is None else (done * each for each in traffic)
        seconds = {folder.path: folder.seeds[0].summary.get("wall_seconds") for folder in run.folders}
        known = [value for value in seconds.values() if value is not None]
        figures = [spread(run.values(name)) for name in shown]
        took = [len(run.seeds), done, up, down, sum(known) if known else None]
        rows.append([*who(run), *figures, *took])
    return Table(
        "results",
        "Results",
        f"{'Percent, mean ± sample standard deviation over seeds, at the reported round. ' if shown else ''}Bytes are "
        "those of all clients and rounds of one seed, seconds those of all seeds.",
        [
            *WHO,
            *(Column(name, f"{title} (%)", "percent", sense_of(name)) for name, title in shown.items()),
            Column("seeds", "seeds", "count"),
            Column("rounds", "rounds", "count"),
            Column("bytes_up", "sent (MB)", "megabytes"),
            Column("bytes_down", "received (MB)", "megabytes"),
            Column("seconds", "seconds", "seconds"),
        ],
        rows,
        ("panel",),
    )


def sense_of(figure: str) -> int:
    """Of a column with a figure of a record, see `Column`."""
    return 1 if larger_is_better(figure) else -1


def compared(runs: Sequence[Run], figure: str) -> dict[str, Values]:
    """A figure of each series by panel and seed. Beside runs with an unseen domain, those without one (such as that of
    `fdgjax choose --train`) are not compared."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    unseen = [run for run in runs if not run.panel.startswith(EVERY_DOMAIN)]
    for run in unseen or runs:
        own = {(run.panel, seed.seed): seed.figures[figure] for seed in run.seeds if figure in seed.figures}
        found.setdefault(run.series, {}).update(own)
    return {series: values for series, values in found.items() if values}


def with_columns(table: Table, kept: Sequence[int]) -> Table:
    """The table with these of its columns alone."""
    return table._replace(columns=[table.columns[i] for i in kept], rows=[[row[i] for i in kept] for row in table.rows])


def targets_table(runs: Sequence[Run], figures: Mapping[str, str], kind: str, name: str, title: str) -> Table:
    """Methods by unseen domains, and the mean over these; empty for a single domain.

    Args:
      runs: those shown.
      figures: their keys, all of one kind, and titles.
      kind: of the columns.
      name, title: of the table.
    """
    panels = list(by_panel(runs))
    rows, near = list[list[Cell]](), set[tuple[int, str]]()
    for key in [key for key in figures if any(run.values(key) for run in runs)]:
        there = compared(runs, key)
        needed = {panel for values in there.values() for panel, _ in values}
        ranked = ranking(there, larger_is_better(key))
        undecided = {one.name for one in ranked if one.behind and one.behind.words == "undecided"}
        for series, of_series in by_series(runs).items():
            mine = {run.panel: run for run in of_series}
            each = [spread(mine[panel].values(key)) if panel in mine else None for panel in panels]
            if not any(each):
                continue
            near |= {(len(rows), "mean")} if series in undecided else set()
            own = there.get(series, {})
            mean = over_targets(own) if {panel for panel, _ in own} == needed else None
            rows.append([marked_name(series, list(mine.values())), figures[key], *each, mean])
    columns = [Column("method", "method"), Column("figure", "figure")]
    columns += [Column(panel, panel, kind, 1) for panel in panels]
    return Table(
        name,
        title,
        f"{'Percent; the' if kind == 'percent' else 'The'} last column is the mean over the domains, with the "
        "deviation of the seeds' means, for methods that have all of them.",
        [*columns, Column("mean", "mean", kind, 1)],
        rows if len(panels) > 1 else [],
        ("figure",),
        frozenset(near),
    )


def domains(runs: Sequence[Run]) -> Table:
    """Accuracy on each domain."""
    names, rows = by_name(runs, "per_domain_accuracy")
    return Table(
        "domains",
        "Accuracy on each domain",
        "Percent. A source domain is evaluated with the models of the clients that hold it, the unseen domain with all "
        "models.",
        [*WHO, *(Column(name, name, "percent", 1) for name in names)],
        rows,
        ("panel",),
    )


def by_name(runs: Sequence[Run], figure: str) -> tuple[list[str], list[list[Cell]]]:
    """The names by which a figure has its values, and for each run that has it a row with a cell for each name."""
    names = names_in(runs, figure)
    found = [(run, run.values(figure)) for run in runs]
    rows = [[*who(run), *(spread([one.get(name) for one in each]) for name in names)] for run, each in found if each]
    return names, rows


def fairness_table(runs: Sequence[Run]) -> Table:
    """How evenly accuracy is spread over domains and over clients."""
    rows = []
    for run in runs:
        row = [spread(values) for values in evenness(run).values()]
        rows += [[*who(run), *row]] if any(row) else []
    titles = {
        "domain_std": "deviation over domains",
        "domain_min": "worst domain",
        "client_std": "deviation over clients",
        "client_min": "worst client",
    }
    return Table(
        "fairness",
        "Fairness",
        "Percent; the standard deviation (ddof = 0) and the minimum over domains and over clients, mean over seeds.",
        [*WHO, *(Column(key, title, "percent", -1 if key.endswith("std") else 1) for key, title in titles.items())],
        rows,
        ("panel",),
    )


def evenness(run: Run) -> dict[str, list[float]]:
    """For each seed the deviation and the minimum over domains and over clients."""
    found: dict[str, list[float]] = {}
    for name, figure in (("domain", "per_domain_accuracy"), ("client", "client_accuracy")):
        each = [list(accuracies.values()) for accuracies in run.values(figure) if accuracies]
        found[f"{name}_std"] = [float(np.std(one)) for one in each]
        found[f"{name}_min"] = [float(np.min(one)) for one in each]
    return found


def probes(runs: Sequence[Run]) -> Table:
    """Linear probes by their percentage of labels."""
    percents, rows = by_name(runs, "probe_by_percent")
    return Table(
        "probes",
        "Linear probes by the share of labels",
        "Percent, on the unseen domain.",
        [*WHO, *(Column(f"labels_{p}", f"{p} % of labels", "percent", 1) for p in percents)],
        rows,
        ("panel",),
    )


def curve(run: Run, figure: str) -> tuple[np.ndarray, np.ndarray]:
    """The rounds in which a figure was evaluated for any seed, and its values `[seeds, rounds]` of the seeds that have
    it, NaN where one lacks a round."""
    each = [
        {record["round"]: record[figure] for record in seed.records if is_evaluated(record) and figure in record}
        for seed in run.seeds
    ]
    rounds = sorted({round_ for one in each for round_ in one})
    values = [[one.get(round_, np.nan) for round_ in rounds] for one in each if one]
    return np.asarray(rounds, np.int64), np.asarray(values, np.float64).reshape(-1, len(rounds))


def thresholds(runs: Sequence[Run]) -> list[float]:
    """The four highest multiples of 10 % that the main figure of any run reaches."""
    best = max((float(np.nanmax(curve(run, main_figure(run))[1])) for run in runs if main_figure(run)), default=0.0)
    return [ten / 10 for ten in range(1, 10) if ten / 10 <= best + EQUAL][-4:]


def first_round(run: Run, accuracy: float) -> list[int | None]:
    """For each seed, the first round whose evaluation reached an accuracy; None where none did."""
    rounds, values = curve(run, main_figure(run))
    return [next((int(r) for r, v in zip(rounds, one, strict=True) if v >= accuracy - EQUAL), None) for one in values]


def communication(runs: Sequence[Run], reach: Sequence[float] = ()) -> Table:
    """Rounds and bytes until the main figure first reaches some accuracies."""
    wanted, rows = list(reach) or thresholds(runs), []
    missed = set(wanted)
    for run in (run for run in runs if main_figure(run)):
        row: list[Cell] = [*who(run), HEADLINES[main_figure(run)]]
        per_round = recorded_bytes(run)
        for accuracy in wanted:
            rounds = first_round(run, accuracy)
            reached = None if None in rounds else spread(rounds)
            missed -= {accuracy} if reached else set()
            row += [reached, reached and per_round and reached.times(sum(per_round))]
        rows.append(row)
    columns = [*WHO, Column("figure", "figure")]
    for accuracy in wanted:
        percent = f"{100 * accuracy:g}"
        columns += [
            Column(f"rounds_to_{percent}", f"rounds to {percent} %", "rounds"),
            Column(f"bytes_to_{percent}", f"MB to {percent} %", "megabytes"),
        ]
    unreached = f" No run reached {', '.join(f'{100 * one:g} %' for one in sorted(missed))} in all seeds."
    return Table(
        "communication",
        "Communication needed",
        "Until an evaluation, one every eval_every rounds, first reached an accuracy, in all seeds: rounds, and MB "
        f"sent and received by all clients; mean ± deviation over seeds.{unreached if missed else ''}",
        columns,
        rows if wanted else [],
    )
