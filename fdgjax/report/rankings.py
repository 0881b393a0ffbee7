"""The tables that compare series: rankings with paired differences, and what differs between the runs."""

from collections.abc import Sequence

from fdgjax.evaluation import HEADLINES
from fdgjax.evaluation.statistics import ranking
from fdgjax.report.reading import Run, marked_name
from fdgjax.report.tables import MAIN, WHO, Cell, Column, Table, compared


def ranked_rows(runs: Sequence[Run], figure: str, title: str = "", larger: bool = True) -> list[list[Cell]]:
    """Series ranked by a figure, those of several panels by the mean over these; nothing for a single one.

    Args:
      runs: those compared.
      figure: its key.
      title: of the figure; '' for that of a headline.
      larger: whether larger values are better.
    """
    found = ranking(compared(runs, figure), larger)
    rows: list[list[Cell]] = []
    for one in found if len(found) > 1 else []:
        name = marked_name(one.name, [run for run in runs if run.series == one.name])
        low, high = (one.behind and one.behind.interval) or (None, None)
        apart: list[Cell] = [None, None, None, None, None, None]
        if one.behind:
            error = one.behind.error if one.behind.freedom else None
            wins = f"{one.behind.wins} of {one.behind.pairs}"
            apart = [one.behind.mean, error, low, high, wins, one.behind.words]
        rows.append([name, title or HEADLINES[figure], one.place, one.spread, one.spread.n, one.targets, *apart])
    return rows


RANKED = [
    Column("method", "method"),
    Column("figure", "figure"),
    Column("place", "place", "count"),
    Column("mean", "mean (%)", "percent"),
    Column("seeds", "seeds", "count"),
    Column("targets", "domains", "count"),
    Column("behind", "from the first", "points"),
    Column("error", "standard error", "percent"),
    Column("low", "from", "points"),
    Column("high", "to", "points"),
    Column("wins", "ahead in"),
    Column("verdict", "verdict"),
]
"""The columns of `ranked_rows`."""
PAIRED = (
    "the difference from the first is paired by seed, in points, with its standard error and an interval of 95 % (t); "
    "ahead in: the pairs in which a method beats the first. Undecided: the interval has 0 in it. The intervals speak "
    "of other seeds on these domains, not of other domains, and nothing is corrected for the number of methods."
)


def rankings(runs: Sequence[Run]) -> Table:
    """Who is best, and how sure that is."""
    names = [name for name in (*MAIN, *HEADLINES) if name.endswith("accuracy")]
    return Table(
        "ranking",
        "Ranking",
        f"By the mean over the domains; {PAIRED} Methods that were not run on all domains have no place.",
        RANKED,
        [row for name in dict.fromkeys(names) for row in ranked_rows(runs, name)],
    )


def rankings_by_target(runs: Sequence[Run]) -> Table:
    """The ranking on each domain; empty for a single one."""
    rows: list[list[Cell]] = []
    for panel in dict.fromkeys(run.panel for run in runs):
        mine = [run for run in runs if run.panel == panel]
        figure = next((name for name in MAIN if any(run.values(name) for run in mine)), "")
        rows += [[panel, *row] for row in (ranked_rows(mine, figure) if figure else [])]
    several = len({row[0] for row in rows}) > 1
    table = Table(
        "ranking_by_target",
        "Ranking on each domain",
        f"By the main figure; {PAIRED}",
        [Column("panel", "tested on"), *RANKED],
        rows if several else [],
    )
    kept = [i for i, column in enumerate(table.columns) if column.key != "targets"]
    return table._replace(columns=[table.columns[i] for i in kept], rows=[[row[i] for i in kept] for row in table.rows])


def settings_table(runs: Sequence[Run]) -> Table:
    """What differs between the runs: a row for each series, or for each of its settings and where they were used."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    rows: list[list[Cell]] = []
    for series in dict.fromkeys(run.series for run in runs):
        panels: dict[tuple[str | None, ...], list[str]] = {}
        mine = [run for run in runs if run.series == series]
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
