"""What a user sees during a run and at its end."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from fdgjax.evaluation import HEADLINES, short_names
from fdgjax.evaluation.metrics import Record, is_evaluated
from fdgjax.evaluation.number_figures import NUMBER_FIGURES
from fdgjax.evaluation.probability_figures import FIGURES, interval_key
from fdgjax.evaluation.statistics import wilson


class Console:
    """Output for the user: a line per evaluation, and in a terminal a progress bar below."""

    def __init__(self, rich: RichConsole | None = None) -> None:
        self._rich = rich or RichConsole()

    def say(self, text: str) -> None:
        """Prints a message without markup."""
        self._rich.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, table: Table) -> None:
        """Prints a table."""
        self._rich.print(table)

    @contextlib.contextmanager
    def progress(self, rounds: int, done: int) -> Iterator[Callable[[Record], None]]:
        """Yields a function that shows the progress of the run, given each round's number, figures and loss."""
        columns = (
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=self._rich, disable=not self._rich.is_terminal) as bar:
            task = bar.add_task("compiling", total=rounds, completed=done)

            def show(record: Record) -> None:
                bar.update(task, description="", completed=record["round"])
                if is_evaluated(record):
                    loss = record.get("train_loss")
                    shown = [headlines(record), *([] if loss is None else [f"loss {loss:.3f}"])]
                    self.say(f"round {record['round']}/{rounds}  {'  '.join(shown)}")

            yield show

    def result(self, summary: Mapping[str, Any]) -> None:
        """Prints accuracies or probes, then traffic and speed; for several seeds, means and standard deviations."""
        std = summary.get("std", {})
        several = f"seeds {', '.join(map(str, summary['seeds']))}: mean +- sample std" if std else ""
        self.say(
            f"{summary['method']} on {summary['dataset']}, {summary['rounds']} rounds, "
            + (several or f"seed {summary['seed']}")
        )
        if dropped := summary.get("updates_dropped"):
            whole = "; the model is the initial one" if dropped == summary["updates"] else ""
            self.say(f"{dropped:,} of {summary['updates']:,} updates were not finite, and were left out{whole}")
        if "per_domain_accuracy" in summary:
            self.accuracies(summary, std)
        elif "per_domain_rmse" in summary:
            self.of_numbers(summary, std)
        else:
            self.probes(summary, std)
        self.say(
            f"{summary['parameters']:,} parameters   {summary['bytes_up_per_round']:,} bytes up a round   "
            f"{summary['images_per_second']:,.0f} {summary.get('samples', 'images')}/s   "
            f"{summary['wall_seconds']:.0f} s"
        )

    def probes(self, summary: Mapping[str, Any], std: Mapping[str, Any]) -> None:
        """Prints probe accuracies by percentage of labels, with deviations over seeds, or over splits for one seed."""
        table = Table()
        table.add_column("labels")
        table.add_column(f"probe on {summary['target']} (unseen)", justify="right")
        over_seeds, over_splits = std.get("probe_by_percent", {}), summary.get("probe_deviation_by_percent", {})
        for percent, value in summary["probe_by_percent"].items():
            table.add_row(f"{percent} %", figure(value, over_seeds.get(percent, over_splits.get(percent))))
        self.show(table)

    def accuracies(self, summary: Mapping[str, Any], std: Mapping[str, Any]) -> None:
        """Prints the table of accuracies per domain, with the number of images and, for one seed, the interval that
        follows from it, or from that of groups; and the remaining figures below."""
        domains = len(summary["per_domain_accuracy"]) - (summary["target"] in summary["per_domain_accuracy"])
        table = Table(show_footer=True)
        table.add_column("domain", footer="mean" if domains == summary["clients"] else "mean over clients")
        seen = "avg_accuracy" if "avg_accuracy" in summary else "id_accuracy"
        columns = [key for key in (seen, "ood_accuracy") if key in summary]
        for key in columns:
            table.add_column(HEADLINES[key], justify="right", footer=figure(summary[key], std.get(key)))
        counted = {summary.get("samples", "images"): summary.get("images_by_domain", {})}  # former versions had none
        counted |= {"groups": summary["groups_by_domain"]} if "groups_by_domain" in summary else {}
        for kind in counted:
            table.add_column(kind, justify="right")
        if not std:
            table.add_column("95 % interval", justify="right")
        for name, value in summary["per_domain_accuracy"].items():
            unseen = name == summary["target"]
            shown = figure(value, std.get("per_domain_accuracy", {}).get(name))
            cells = ["", shown] if unseen else [shown, *[""] * (len(columns) - 1)]
            numbers = [each.get(name, 0) for each in counted.values()]
            cells += [f"{number:,}" if number else "" for number in numbers]
            sure = (
                "{:.3f} to {:.3f}".format(*wilson(round(value * numbers[-1]), numbers[-1]))
                if numbers[-1] and not std
                else ""
            )
            table.add_row(f"{name} (unseen)" if unseen else name, *cells, *[sure] * (not std))
        self.show(table)
        if rest := {key: summary[key] for key in HEADLINES if key in summary and key not in columns}:
            self.say(headlines(rest, std))
        self.say(
            f"worst domain {figure(summary['worst_domain_accuracy'], std.get('worst_domain_accuracy'))}   "
            f"calibration error {figure(summary['ece'], std.get('ece'))}"
        )
        self.of_probabilities(summary, std)

    def of_probabilities(self, summary: Mapping[str, Any], std: Mapping[str, Any]) -> None:
        """Prints the figures of `config.figures`: mean over clients, on each domain and on the worst, for one seed with
        the bootstrap interval on a small unseen domain; nothing without any."""
        titles = {name: one.title for name, one in FIGURES.items() if f"per_domain_{name}" in summary}
        if not titles:
            return
        self.by_domain(titles, summary, std)
        if "decision_threshold" in summary:
            self.say(f"decision threshold: {summary['decision_threshold']:.3f}")

    def of_numbers(self, summary: Mapping[str, Any], std: Mapping[str, Any]) -> None:
        """Prints the figures of predicted numbers, in the label's unit."""
        self.by_domain({name: one.title for name, one in NUMBER_FIGURES.items()}, summary, std)

    def by_domain(self, names: Mapping[str, str], summary: Mapping[str, Any], std: Mapping[str, Any]) -> None:
        """Prints a row for each figure, given by name and title: mean over clients, on each domain and on the worst."""
        seen, target = "avg" if any(f"avg_{name}" in summary for name in names) else "id", summary["target"]
        domains = dict.fromkeys(domain for name in names for domain in summary.get(f"per_domain_{name}", {}))
        order = sorted(domains, key=lambda domain: domain == target)
        table = Table(
            Column("figure", no_wrap=True),
            HEADLINES[f"{seen}_accuracy"],
            *(f"{one} (unseen)" if one == target else one for one in order),
            "worst",
        )
        for name, title in names.items():
            sure = {} if std else summary.get(interval_key(name), {})
            values, deviations = summary.get(f"per_domain_{name}", {}), std.get(f"per_domain_{name}", {})
            cells = [
                figure(values[one], deviations.get(one)) + between(sure.get(one) if one == target else None)
                if one in values
                else ""
                for one in order
            ]
            keys = (f"{seen}_{name}", f"worst_domain_{name}")
            ends = [figure(summary[key], std.get(key)) if key in summary else "" for key in keys]
            table.add_row(title, ends[0], *cells, ends[1])
        self.show(table)


def silent_console() -> Console:
    """A console that shows nothing."""
    return Console(RichConsole(quiet=True))


def between(interval: Sequence[float] | None) -> str:
    """` (0.81 to 0.95)`, nothing for None."""
    return "" if interval is None else " ({:.2f} to {:.2f})".format(*interval)


def figure(value: float, std: float | None) -> str:
    """`0.912`, or `0.912 +- 0.010` if a deviation is given."""
    return f"{value:.3f}" if std is None else f"{value:.3f} +- {std:.3f}"


def headlines(record: Mapping[str, Any], std: Mapping[str, Any] = MappingProxyType({})) -> str:
    """`id 0.912  ood 0.684`: the figures of `short_names` that the record has, with deviations if any."""
    return "  ".join(
        f"{name} {figure(record[key], std.get(key))}" for key, name in short_names().items() if key in record
    )
