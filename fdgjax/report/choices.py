"""The choices of a method that `fdgjax choose` left in folders of runs: their tables."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.evaluation.statistics import LEVEL
from fdgjax.report.tables import Cell, Column, Table
from fdgjax.sweeps.choice import CHOICE
from fdgjax.sweeps.work import duration
from fdgjax.utils.checksums import read_checked_json


def choice_tables(paths: Sequence[Path]) -> list[Table]:
    """A table for each choice in the folders, or in one of theirs.

    Raises:
      UserError: a choice's file is damaged.
    """
    files = [file for path in paths for file in (path / CHOICE, *sorted(path.glob(f"*/{CHOICE}"))) if file.is_file()]
    return [choice_table(read_checked_json(file), number) for number, file in enumerate(files)]


def choice_table(choice: Mapping[str, Any], number: int) -> Table:
    """The table of one choice; `number` counts those of the report."""
    rows: list[list[Cell]] = []
    for one in choice["methods"]:
        name = one["name"]
        verdict = "recommended" if name == choice["recommended"] else None
        verdict = verdict or ("not told from the best" if name in choice["indistinguishable"] else None)
        settings = json.dumps(one["values"]) if one["values"] else None
        costs = one["bytes_per_round"], round(1000 * one["seconds_per_round"])
        by_domain = [choice["scores"][name][domain] for domain in choice["domains"]]
        rows.append([name, verdict, *by_domain, one["score"], one["difference"], one["error"], *costs, settings])
    percent = bool(figure_kind(choice["figure"]).unit)
    kind, difference = ("percent", "points") if percent else ("plain", "difference")
    columns = [
        Column("method", "method"),
        Column("verdict", "verdict"),
        *(Column(f"on_{domain}", f"{domain} left out", kind) for domain in choice["domains"]),
        Column("score", choice["by"], kind),
        Column("difference", "from FedAvg", difference),
        Column("error", "standard error", kind),
        Column("bytes", "MB a round", "megabytes"),
        Column("milliseconds", "ms a round", "count"),
        Column("settings", "settings drawn"),
    ]
    return Table(f"choice{number or ''}", "The choice of a method", in_words(choice), columns, rows)


def in_words(choice: Mapping[str, Any]) -> str:
    """How to read the table."""
    count, equal = len(choice["methods"]), len(choice["indistinguishable"])
    told = f"{equal} of {count} methods cannot be told from the best on these domains"
    found = told if equal < count else f"no difference between the {count} methods was found on these domains"
    kind, seeds = figure_kind(choice["figure"]), len(choice["seeds"])
    unit, better = f" {kind.unit}" if kind.unit else "", "" if kind.sign > 0 else " (smaller is better)"
    words = [
        f"{'Percent, ' if unit else ''}{choice['figure']}{better} of each domain while it was left out, mean over "
        f"{seeds} seeds; {found} (sign flips, 5 % for all candidates together), of which "
        f"{choice['recommended']} is the cheapest."
    ]
    if choice["interval"]:
        low, high = map(kind.briefly, choice["interval"])
        words.append(
            f"At a new site such as these {len(choice['domains'])} it is expected between {low} and "
            f"{high}{unit}, with a probability of {100 * LEVEL:.0f} %."
        )
    if choice["target"]:
        words.append(f"{choice['target']} took no part in the choice.")
    if "seconds" in choice:  # a choice of an earlier version has none
        words.append(
            f"Its {count * len(choice['domains'])} runs of {seeds} seeds took {duration(choice['seconds'])} in all."
        )
    return " ".join(words)
