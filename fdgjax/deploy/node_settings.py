"""A node's own settings, which no other party sees, and how `--node-config` names them.

`client` (its number), `images` (a folder) or `table` (a CSV or Parquet file), `states` (a folder), `fresh`, `held_out`
(a folder or table for evaluation alone; 'none' to train on all samples and evaluate on none), `smallest` and `epsilon`;
see `NodeSettings`.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fdgjax.deploy.evaluation import SMALLEST
from fdgjax.deploy.own_samples import OwnPlaces
from fdgjax.utils.errors import UserError, printable, unknown

NAMES = ("client", "images", "table", "states", "fresh", "held_out", "smallest", "epsilon")
"""The names that `--node-config` may have."""


class NodeSettings(NamedTuple):
    """A client's own settings.

    client: its number. places: where its samples are. states: the folder of its state between rounds, and of compiled
    programs. fresh: whether it starts from its initial row if its folder has no state. smallest: of fewer samples the
    node sends no counts. epsilon: how much privacy all its answers may cost together, in every experiment; 0 for no
    limit of its own.
    """

    client: int
    places: OwnPlaces
    states: Path
    fresh: bool = False
    smallest: int = SMALLEST
    epsilon: float = 0.0


def node_settings(settings: dict[str, bool | int | float | str]) -> NodeSettings:
    """The node's settings.

    Raises:
      UserError: one of them is missing, unknown, or not what it should be.
    """
    if strange := [name for name in settings if name not in NAMES]:
        raise unknown("word of --node-config", strange[0], NAMES)
    samples = [str(settings[name]) for name in ("images", "table") if name in settings]
    missing = [name for name in ("client", "states") if name not in settings]
    missing += [] if type(settings.get("client", 0)) is int else ["the client's number"]
    if missing or len(samples) != 1:
        lack = missing if missing else ["images or table"] if not samples else ["a choice between images and table"]
        raise UserError(
            f"--node-config lacks {', '.join(lack)}; expected --node-config \"client=0 images='DIR' states='DIR'\", or "
            "table='FILE' instead of images"
        )
    fresh = settings.get("fresh", False)
    if not isinstance(fresh, bool):
        raise UserError(f"--node-config got fresh='{fresh}'; expected fresh=true or fresh=false, without quotes")
    if settings.get("epsilon") == 0:
        raise UserError("--node-config got epsilon=0, which allows no answer; expected more, such as epsilon=3")
    held_out = str(settings.get("held_out", ""))
    whole = held_out == "none"
    return NodeSettings(
        int(settings["client"]),
        OwnPlaces(Path(samples[0]), Path(held_out) if held_out and not whole else None, whole),
        Path(str(settings["states"])),
        fresh,
        smallest=int(number_in(settings, "smallest", SMALLEST, 1)),
        epsilon=float(number_in(settings, "epsilon", 0.0, 0.0)),
    )


def check_settings(words: Sequence[str]) -> None:
    """Checks the settings of a SuperNode with these words before it starts; without `--node-config` nothing.

    Raises:
      UserError: like `node_settings`, words that are not `NAME=VALUE`, or samples that are not there.
    """
    import click
    from flwr.common.config import parse_config_args

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--node-config")
    given = parser.parse_known_args(list(words))[0].node_config
    if given is None:
        return
    try:
        settings = parse_config_args([given])
    except (click.ClickException, ValueError, OSError) as error:
        raise UserError(
            f'--node-config got {printable(given)}, which cannot be read; expected words such as "client=0 '
            "table='FILE' states='DIR' smallest=20\", texts in single quotes, or a file .toml with them"
        ) from error
    found = node_settings(settings)
    for place in filter(None, (found.places.samples, found.places.held_out)):
        if not place.exists():
            raise UserError(f"--node-config got {printable(place)}, which is not there; expected a party's own samples")


def number_in(settings: Mapping[str, bool | int | float | str], name: str, default: float, least: float) -> float:
    """A number of the node's settings, a whole one where the default is.

    Raises:
      UserError: another value, or a number below `least`.
    """
    got = settings.get(name, default)
    kinds = (int,) if isinstance(default, int) else (int, float)
    if isinstance(got, bool) or not isinstance(got, kinds) or not least <= got < math.inf:
        what = "a whole number" if isinstance(default, int) else "a number"
        raise UserError(f"--node-config got {name}={got}; expected {what} from {least:g}, such as {name}=8")
    return got
