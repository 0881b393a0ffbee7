"""What is evaluated stays on the screen, in a terminal as in a pipe."""

import io

import pytest
from rich.console import Console as RichConsole

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
