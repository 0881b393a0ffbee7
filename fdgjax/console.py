"""What a user sees while a run goes on, and at its end."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

Record = Mapping[str, Any]


class Console:
    """A terminal: a live bar where there is one, a line per evaluation where output goes to a file."""

    def __init__(self, rich: RichConsole | None = None) -> None:
        self._rich = rich or RichConsole()

    def say(self, text: str) -> None:
        """One message, as it is."""
        self._rich.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, rounds: int, done: int) -> Iterator[Callable[[Record], None]]:
        """Shows the records it is given."""
        columns = (
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        live = self._rich.is_terminal
        with Progress(*columns, console=self._rich, disable=not live) as bar:
            task = bar.add_task("compiling", total=rounds, completed=done)

            def show(record: Record) -> None:
                if live and "id_accuracy" in record:
                    bar.update(task, description=accuracies(record))
                elif live and bar.tasks[task].description == "compiling":
                    bar.update(task, description="")
                bar.update(task, completed=record["round"])
                if not live and "id_accuracy" in record:
                    self.say(f"round {record['round']}/{rounds}  {accuracies(record)}")

            yield show

    def result(self, summary: Record) -> None:
        """The table of accuracies per domain, and where the rest is; of several seeds, means and deviations."""
        std = summary.get("std", {})
        several = f"seeds {', '.join(map(str, summary['seeds']))}: mean +- sample std" if std else ""
        self.say(
            f"{summary['method']} on {summary['dataset']}, {summary['rounds']} rounds, "
            + (several or f"seed {summary['seed']}")
        )
        table = Table(show_footer=True)
        table.add_column("domain", footer="mean")
        for kind in ("id", "ood"):
            footer = figure(summary[f"{kind}_accuracy"], std.get(f"{kind}_accuracy"))
            table.add_column(kind, justify="right", footer=footer)
        for name, value in summary["per_domain_accuracy"].items():
            unseen = name == summary["target"]
            shown = figure(value, std.get("per_domain_accuracy", {}).get(name))
            table.add_row(f"{name} (unseen)" if unseen else name, "" if unseen else shown, shown if unseen else "")
        self._rich.print(table)
        self.say(
            f"worst domain {figure(summary['worst_domain_accuracy'], std.get('worst_domain_accuracy'))}   "
            f"calibration error {figure(summary['ece'], std.get('ece'))}   "
            f"{summary['parameters']:,} parameters   {summary['bytes_up_per_round']:,} bytes up a round   "
            f"{summary['images_per_second']:,.0f} images/s   {summary['wall_seconds']:.0f} s"
        )


def figure(value: float, std: float | None) -> str:
    """`0.912`, or `0.912 +- 0.010` where there is a deviation."""
    return f"{value:.3f}" if std is None else f"{value:.3f} +- {std:.3f}"


def accuracies(record: Record) -> str:
    """`id 0.912  ood 0.684`."""
    return f"id {record['id_accuracy']:.3f}  ood {record['ood_accuracy']:.3f}"
