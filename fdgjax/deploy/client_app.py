"""Flower's ClientApp: hands a message, in a fresh process, to the node's request handlers and returns their reply.

Each node sets its own settings in `--node-config`: `client` (its number), `images` (a
folder) or `table` (a CSV or Parquet file), `states` (a folder), `fresh`, and `epsilon` (see `NodeSettings`).
"""

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fdgjax.deploy.flower_transport import from_content, reply_content
from fdgjax.deploy.request_handlers import NodeSettings, serve
from fdgjax.run.compilation_cache import remember_all_programs
from fdgjax.utils.errors import UserError

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """The reply to a request of the server."""
    node = node_settings(dict(context.node_config))
    remember_all_programs(node.states / "compiled")
    return Message(reply_content(serve(node, from_content(message.content))), reply_to=message)


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
        float(settings.get("epsilon", 0.0)),
    )
