"""Flower's ClientApp: hands a message to the node's request handlers and returns their reply.

`flower-supernode` runs it in a fresh process for each message, `fdgjax.deploy.worker` in one for all.

Each node sets its own settings in `--node-config`: `client` (its number), `images` (a
folder) or `table` (a CSV or Parquet file), `states` (a folder), `fresh`, `held_out` (a folder or table for evaluation
alone; 'none' to train on all samples and evaluate on none), `smallest` (of fewer samples no counts are sent), and
`epsilon` (see `NodeSettings`).
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fdgjax.deploy.evaluation import SMALLEST
from fdgjax.deploy.flower_transport import from_content, reply_content
from fdgjax.deploy.request_handlers import START_AGAIN, NodeSettings, Prepared, serve
from fdgjax.deploy.wire import Reply
from fdgjax.run.compilation_cache import remember_all_programs
from fdgjax.utils.errors import UserError, system_words

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """The reply to a request of the server, in a process of its own."""
    return reply_to(message, context, {})


def reply_to(message: Message, context: Context, nodes: dict[str, Prepared]) -> Message:
    """The reply to a request of the server; `nodes` is for `serve`, in a process that answers several."""
    own = dict(context.node_config)
    try:
        node = node_settings(own)
        request = from_content(message.content)._replace(run=str(message.metadata.run_id))
        remember_all_programs(node.states / "compiled")
        reply = serve(node, request, nodes)
    except UserError as error:
        reply = failure(own, str(error))
    except OSError as error:
        reply = failure(own, system_words(error, START_AGAIN))
    if reply.error:
        logging.getLogger("flwr").error("fdgjax: %s", reply.error)  # the server says it, too
    return Message(reply_content(reply), reply_to=message)


def failure(settings: Mapping[str, Any], line: str) -> Reply:
    """The reply of a node that cannot answer; its number is -1 if its settings do not have it."""
    number = settings.get("client")
    return Reply(number if isinstance(number, int) else -1, {}, {}, line)


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
