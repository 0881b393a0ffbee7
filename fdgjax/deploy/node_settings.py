"""A node's own settings, which no other party sees, and how `--node-config` names them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.deploy.evaluation import SMALLEST
from fdgjax.deploy.own_samples import OwnPlaces
from fdgjax.utils.errors import UserError


class NodeSettings(NamedTuple):
    """A client's own settings.

    client: its number. samples: the folder of its images, or its table. states: the folder of its state between rounds,
    and of compiled programs. fresh: whether it starts from its initial row if its folder has no state.
    held_out: samples for evaluation alone, placed as `samples` are; None to hold some of these out. whole: whether it
    trains on all and evaluates on none. smallest: of fewer samples the node sends no counts.
    epsilon: how much privacy all its answers may cost together, in every experiment; 0 for no limit of its own.
    """

    client: int
    samples: Path
    states: Path
    fresh: bool = False
    held_out: Path | None = None
    whole: bool = False
    smallest: int = SMALLEST
    epsilon: float = 0.0

    @property
    def places(self) -> OwnPlaces:
        """Where its samples are."""
        return OwnPlaces(self.samples, self.held_out, self.whole)


def node_settings(settings: dict[str, bool | int | float | str]) -> NodeSettings:
    """The node's settings.

    Raises:
      UserError: one of them is missing.
    """
    samples = [str(settings[name]) for name in ("images", "table") if name in settings]
    missing = [name for name in ("client", "states") if name not in settings]
    missing += [] if isinstance(settings.get("client", 0), int) else ["the client's number"]
    if missing or len(samples) != 1:
        lack = missing if missing else ["images or table"] if not samples else ["a choice between images and table"]
        raise UserError(
            f"--node-config lacks {', '.join(lack)}; expected --node-config \"client=0 images='DIR' states='DIR'\", or "
            "table='FILE' instead of images"
        )
    return NodeSettings(
        int(settings["client"]),
        Path(samples[0]),
        Path(str(settings["states"])),
        bool(settings.get("fresh", False)),
        epsilon=float(settings.get("epsilon", 0.0)),
        **held_out_settings(settings),
    )


def held_out_settings(settings: Mapping[str, bool | int | float | str]) -> dict[str, Any]:
    """What a node's own settings say on its evaluation; raises a `UserError` for a smallest number below 1."""
    place, smallest = str(settings.get("held_out", "")), int(settings.get("smallest", SMALLEST))
    if smallest < 1:
        raise UserError(f"--node-config got smallest={smallest}; expected the smallest number of samples, at least 1")
    whole = place == "none"
    return {"held_out": Path(place) if place and not whole else None, "whole": whole, "smallest": smallest}
