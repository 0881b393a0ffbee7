"""The choices of a method that `fdgjax choose` left in folders of runs: their tables."""

import json
from collections.abc import Sequence
from pathlib import Path

from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.report.rankings import DIFFERENCES
from fdgjax.report.tables import Cell, Column, Table
from fdgjax.sweeps.choice_record import CHOICE, Choice, in_words, kept_choice, verdict


def choice_tables(paths: Sequence[Path]) -> list[Table]:
    """A table for each choice in the folders, or in one of theirs; one that is named twice has one.

    Raises:
      UserError: a choice's file is damaged.
    """
    files = [file.resolve() for path in paths for file in (path / CHOICE, *sorted(path.glob(f"*/{CHOICE}")))]
    found = filter(Path.is_file, dict.fromkeys(files))
    return [choice_table(kept_choice(file), number) for number, file in enumerate(found)]


def choice_table(choice: Choice, number: int) -> Table:
    """The table of one choice; `number` counts those of the report."""
    rows: list[list[Cell]] = []
    for one in choice.methods:
        said = "recommended" if one.name == choice.recommended else verdict(choice, one.name) or None
        settings = json.dumps(one.values) if one.values else None
        costs = one.bytes_per_round, round(1000 * one.seconds_per_round)
        by_domain = choice.scores[one.name].values()
        rows.append([one.name, said, *by_domain, one.score, one.difference, one.error, *costs, settings])
    kind = "percent" if figure_kind(choice.figure).unit else "number"
    columns = [
        Column("method", "method"),
        Column("verdict", "verdict"),
        *(Column(f"on_{domain}", f"{domain} left out", kind) for domain in choice.domains),
        Column("score", choice.by, kind),
        Column("difference", "from FedAvg", DIFFERENCES[kind]),
        Column("error", "standard error", kind),
        Column("bytes", "MB a round", "megabytes"),
        Column("milliseconds", "ms a round", "count"),
        Column("settings", "settings drawn"),
    ]
    return Table(f"choice{number or ''}", "The choice of a method", " ".join(in_words(choice)), columns, rows)
