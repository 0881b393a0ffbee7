"""The tables that compare series: rankings with paired differences, and what differs between the runs."""

from collections.abc import Mapping, Sequence

from fdgjax.evaluation import short_names
from fdgjax.evaluation.figure_kinds import larger_is_better
from fdgjax.evaluation.statistics import ranking
from fdgjax.report.reading import Run, by_panel, by_series, marked_name
from fdgjax.report.tables import WHO, Cell, Column, Table, compared, with_columns

DIFFERENCES: Mapping[str, str] = {"percent": "points", "decimals": "difference", "number": "number_difference"}
"""The kinds of columns with figures, and of those with differences of such figures."""


def ranked_rows(runs: Sequence[Run], figure: str) -> list[list[Cell]]:
    """Series ranked by a figure, one of `short_names`, those of several panels by the mean over these; nothing for a
    single one."""
    found, of = ranking(compared(runs, figure), larger_is_better(figure)), by_series(runs)
    rows: list[list[Cell]] = []
    for one in found if len(found) > 1 else []:
        name = marked_name(one.name, of[one.name])
        low, high = (one.behind and one.behind.interval) or (None, None)
        apart: list[Cell] = [None, None, None, None, None, None]
        if one.behind:
            error = one.behind.error if one.behind.freedom else None
            wins = f"{one.behind.wins} of {one.behind.pairs}"
            apart = [one.behind.mean, error, low, high, wins, one.behind.words]
        rows.append([name, short_names()[figure], one.place, one.spread, one.spread.n, one.targets, *apart])
    return rows


def ranked_columns(kind: str) -> list[Column]:
    """The columns of `ranked_rows` for figures of a kind, one of `DIFFERENCES`."""
    difference = DIFFERENCES[kind]
    return [
        Column("method", "method"),
        Column("figure", "figure"),
        Column("place", "place", "count"),
        Column("mean", "mean (%)" if kind == "percent" else "mean", kind),
        Column("seeds", "seeds", "count"),
        Column("targets", "domains", "count"),
        Column("behind", "from the first", difference),
        Column("error", "standard error", kind),
        Column("low", "from", difference),
        Column("high", "to", difference),
        Column("wins", "ahead in"),
        Column("verdict", "verdict"),
    ]


def paired_note(kind: str, figures: Sequence[str]) -> str:
    """What the columns say of figures of a kind; which of these, by their keys, are the better the smaller they are."""
    unit = ", in points," if kind == "percent" else ""
    smaller = ", ".join(short_names()[name] for name in figures if not larger_is_better(name))
    sign = f" Smaller values are better of {smaller}; a positive difference is better there, too." if smaller else ""
    return (
        f"the difference from the first is paired by seed{unit} with its standard error and an interval of 95 % (t); "
        "ahead in: the pairs in which a method beats the first. Undecided: the interval has 0 in it. The intervals "
        "speak of other seeds on these domains, not of other domains, and nothing is corrected for the number of "
        f"methods.{sign}"
    )


def ranking_table(runs: Sequence[Run], figures: Sequence[str], kind: str, name: str, title: str) -> Table:
    """Who is best by each of some figures of one kind, and how sure that is."""
    shown = [figure for figure in figures if any(run.values(figure) for run in runs)]
    return Table(
        name,
        title,
        "By the mean over the domains, of the seeds that all methods have there, if there are any; "
        f"{paired_note(kind, shown)} Methods that were not run on all domains have no place.",
        ranked_columns(kind),
        [row for figure in shown for row in ranked_rows(runs, figure)],
    )


def ranking_by_target(runs: Sequence[Run], main: Sequence[str], kind: str, name: str, title: str) -> Table:
    """The ranking on each domain by the first of some figures that its runs have; empty for a single domain."""
    panels = by_panel(runs)
    chosen = {
        panel: figure
        for panel, mine in panels.items()
        if (figure := next((one for one in main if any(run.values(one) for run in mine)), ""))
    }
    rows: list[list[Cell]] = [
        [panel, *row] for panel, figure in chosen.items() for row in ranked_rows(panels[panel], figure)
    ]
    several = len({row[0] for row in rows}) > 1
    table = Table(
        name,
        title,
        f"By the main figure; {paired_note(kind, list(dict.fromkeys(chosen.values())))}",
        [Column("panel", "tested on"), *ranked_columns(kind)],
        rows if several else [],
    )
    kept = [i for i, column in enumerate(table.columns) if column.key != "targets"]
    return with_columns(table, kept)


def settings_table(runs: Sequence[Run]) -> Table:
    """What differs between the runs: a row for each series, or for each of its settings and where they were used."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    rows: list[list[Cell]] = []
    for series, mine in by_series(runs).items():
        panels: dict[tuple[str | None, ...], list[str]] = {}
        for run in mine:
            panels.setdefault(tuple(run.settings.get(key) for key in keys), []).append(run.panel)
        name = marked_name(series, mine)
        rows += [[name, "; ".join(each) if len(panels) > 1 else None, *own] for own, each in panels.items()]
    return Table(
        "settings",
        "What differs",
        "The settings that are not the same in all runs; those of a method are compared among its runs alone.",
        [*WHO, *(Column(key, key) for key in keys)],
        rows if keys else [],
    )
