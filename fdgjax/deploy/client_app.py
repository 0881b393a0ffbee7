"""Flower's ClientApp: hands a message to the node's request handlers and returns their reply.

`flower-supernode` runs it in a fresh process for each message, `fdgjax.deploy.worker` in one for all.

Each node sets its own settings in `--node-config`: `client` (its number), `images` (a
folder) or `table` (a CSV or Parquet file), `states` (a folder), `fresh`, `held_out` (a folder or table for evaluation
alone; 'none' to train on all samples and evaluate on none), `smallest` (of fewer samples no counts are sent), and
`epsilon` (see `NodeSettings`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fdgjax.deploy.evaluation import SMALLEST
from fdgjax.deploy.flower_transport import from_content, reply_content
from fdgjax.deploy.request_handlers import NodeSettings, Prepared, serve
from fdgjax.run.compilation_cache import remember_all_programs
from fdgjax.utils.errors import UserError

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """The reply to a request of the server, in a process of its own."""
    return reply_to(message, context, {})


def reply_to(message: Message, context: Context, nodes: dict[str, Prepared]) -> Message:
    """The reply to a request of the server; `nodes` is for `serve`, in a process that answers several."""
    node = node_settings(dict(context.node_config))
    remember_all_programs(node.states / "compiled")
    return Message(reply_content(serve(node, from_content(message.content), nodes)), reply_to=message)


def node_settings(settings: dict[str, bool | int | float | str]) -> NodeSettings:
    """The node's settings.

    Raises:
      UserError: one of them is missing.
    """
    samples = [str(settings[name]) for name in ("images", "table") if name in settings]
    missing = [name for name in ("client", "states") if name not in settings]
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
