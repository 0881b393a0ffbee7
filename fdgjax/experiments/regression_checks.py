"""What a task without classes cannot have."""

from fdgjax.config import Config
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.protocols import Protocol
from fdgjax.engine.robustness.attacks import ATTACKS
from fdgjax.evaluation.probability_figures import names_in
from fdgjax.methods import Entry
from fdgjax.utils.errors import UserError

OF_CLASSES = ("tent", "shot", "t3a")
"""Adaptations by the model's predicted classes."""


def check_task(config: Config, entry: Entry, protocol: Protocol) -> None:
    """Raises a `UserError` for what needs classes, in a task without."""
    if not TASKS[config.task].numeric:
        return
    numbers = f"with config.task={config.task} labels are numbers"
    attack = ATTACKS[config.attack.kind]
    refused = (
        (entry.unlabelled, f"method '{entry.name}' learns without labels, and", "fedavg"),
        (protocol.labelled_server, f"protocol '{config.data.protocol}' makes pseudo-labels, and", "leave_one_out"),
        (names_in(config.figures), f"config.figures got '{config.figures}', of probabilities, but", "none"),
        (
            ":" in config.selection,
            f"config.selection got '{config.selection}', by a figure of probabilities, but",
            config.selection.partition(":")[0],
        ),
        (
            config.figures_sensitivity,
            f"config.figures_sensitivity got {config.figures_sensitivity:g}, of a threshold of probabilities, but",
            "0",
        ),
        (config.adaptation.kind in OF_CLASSES, f"config.adaptation.kind got '{config.adaptation.kind}', but", "own"),
        (config.data.label_skew, f"config.data.label_skew got {config.data.label_skew:g}, of classes, but", "0"),
        (config.data.shots, f"config.data.shots got {config.data.shots}, drawn from all classes, but", "0"),
        (attack.poison or attack.wanted, f"config.attack.kind got '{config.attack.kind}', but", "sign_flip or scale"),
    )
    for wrong, got, expected in refused:
        if wrong:
            raise UserError(f"{got} {numbers}; expected {expected}, or config.task=classification")
    if config.privacy.unit:
        raise UserError(
            f"config.privacy.unit got '{config.privacy.unit}', but the sums of labels that {config.task} standardises "
            "by are exact, and no noise covers them; expected none"
        )
