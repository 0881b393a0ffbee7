"""What is evaluated stays on the screen, in a terminal as in a pipe."""

import io
import re

import pytest
from rich.console import Console as RichConsole

from fdgjax.evaluation.statistics import wilson
from fdgjax.run.console import Console


@pytest.mark.parametrize("terminal", [False, True])
def test_evaluations_and_loss_are_lines_of_their_own(terminal: bool) -> None:
    screen = io.StringIO()
    with Console(RichConsole(file=screen, width=100, force_terminal=terminal)).progress(4, 1) as show:
        show({"round": 2, "train_loss": 0.75, "id_accuracy": 0.5, "ood_accuracy": 0.25})
        show({"round": 3, "train_loss": 0.5})
        show({"round": 4, "train_loss": None, "id_accuracy": 1.0})
    shown = screen.getvalue().replace("\r", "\n").replace("\x1b[2K", "").splitlines()
    rounds = [line for line in shown if line.startswith("round ") and "/4  " in line]
    assert rounds == ["round 2/4  id 0.500  ood 0.250  loss 0.750", "round 4/4  id 1.000"]
    assert ("━━━━" in screen.getvalue()) == terminal


def test_the_interval_of_grouped_samples_is_that_of_their_groups() -> None:
    figures = {"id_accuracy": 0.9, "ood_accuracy": 0.5, "worst_domain_accuracy": 0.5, "ece": 0.1}
    sizes = {"rounds": 1, "seed": 0, "clients": 1, "parameters": 9, "bytes_up_per_round": 36}
    facts = {"method": "fedavg", "dataset": "table", "target": "b", "images_per_second": 1.0, "wall_seconds": 1.0}
    summary = {**figures, **sizes, **facts, "samples": "rows", "per_domain_accuracy": {"a": 0.9, "b": 0.5}}
    summary |= {"images_by_domain": {"a": 100, "b": 200}}
    for grouped, numbers in (({}, [200]), ({"groups_by_domain": {"a": 20, "b": 10}}, [200, 10])):
        screen = io.StringIO()
        Console(RichConsole(file=screen, width=100)).result(summary | grouped)
        (line,) = [line for line in screen.getvalue().splitlines() if "b (unseen)" in line]
        expected = [0.5, *numbers, *wilson(numbers[-1] // 2, numbers[-1])]
        assert [float(word) for word in re.findall(r"[0-9.]+", line)] == pytest.approx(expected, abs=5e-4)
