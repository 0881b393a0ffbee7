"""What a deployment cannot do and a simulation can."""

from collections.abc import Collection

from fdgjax.config import Config
from fdgjax.config.robustness import refuse_attack
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.protocols import Protocol
from fdgjax.methods import Entry
from fdgjax.utils.errors import UserError


def check_deployable(config: Config, figures: Collection[str], entry: Entry, protocol: Protocol) -> None:
    """Raises a `UserError` for what is simulated, but not deployed.

    Args:
      config: the experiment's.
      figures: those of `config.figures` that a party computes of its own samples.
      entry: of its method.
      protocol: its protocol.
    """
    refuse_attack(config)
    if config.privacy.unit == "client" and config.privacy.where != "server":
        raise UserError(
            f"config.privacy.where got '{config.privacy.where}', but the server sees each message, which has a share "
            "of the noise alone; expected server, which is then trusted, or config.privacy.unit=sample"
        )
    if TASKS[config.task].numeric:
        raise UserError(
            f"config.task got {config.task}, but parties exchange no sums of labels to standardise them by; expected "
            "classification: regression is simulated, not deployed"
        )
    rule, by_figure, figure = config.selection.partition(":")
    if by_figure and (rule != "validation" or figure not in figures):
        raise UserError(
            f"config.selection got '{config.selection}', whose figure is computed from samples of all parties at once; "
            "expected validation with a figure that each computes of its own, such as validation:auroc, or without"
        )
    for key in ("split", "owner"):
        if got := getattr(config.data, key):
            raise UserError(
                f"config.data.{key} got '{got}', but each party is a client and says what it holds out, by held_out in "
                "its node-config; expected '' in a deployment"
            )
    if config.data.shots:
        raise UserError(
            f"config.data.shots got {config.data.shots}, but no party gives samples to another; expected 0 in a "
            "deployment"
        )
    if config.seeds > 1:
        raise UserError(f"config.seeds got {config.seeds}; expected 1: a deployment trains one model")
    if config.model.frozen_copies:
        raise UserError(
            f"config.model.frozen_copies got {config.model.frozen_copies}; expected 0: parties keep no features, and "
            "augment in each step"
        )
    if protocol.labelled_server and entry.protocol != "labelled_server":
        raise UserError(
            f"'{entry.name}' with the protocol labelled_server has pseudo-labels from a model trained before the "
            "first round, which is not deployed; expected a method of that protocol, such as ssfl, or labels at clients"
        )
