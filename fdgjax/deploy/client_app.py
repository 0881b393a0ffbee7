"""Flower's ClientApp: hands a message to the node's request handlers and returns their reply.

`flower-supernode` runs it in a fresh process for each message, `fdgjax.deploy.worker` in one for all.
"""

import logging
from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fdgjax.deploy.flower_transport import from_content, reply_content
from fdgjax.deploy.node_settings import node_settings
from fdgjax.deploy.request_handlers import START_AGAIN, Prepared, serve
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
