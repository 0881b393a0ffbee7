"""The process that answers a node's messages one after the other; `fdgjax.deploy.warm_node` starts it.

It stands for Flower's `flower-superexec`, which waits for messages, and for `flwr-clientapp`, which answers one and
ends. It runs the installed fdgjax alone, whatever code the operator's app names. The samples and the traced and
compiled programs of the last terms stay in memory; nothing else does, so that it may end at any time.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime import run_clientapp

from fdgjax.deploy.client_app import reply_to
from fdgjax.deploy.processes import end_with_parent
from fdgjax.deploy.request_handlers import Prepared
from fdgjax.deploy.waiting import pause, retry_soon

LONGEST_PAUSE = 1.0
"""Seconds between two looks for a message, at most; Flower's own are a second apart."""
PATIENCE = 10.0
"""Seconds in which a message is expected whose task is there."""
FAILED = 1


def main(argv: Sequence[str]) -> NoReturn:
    """Answers messages until standard input closes.

    Args:
      argv: the program; the address of the SuperNode's own interface; the file of the authority that signed the
        interface's certificate, '' for an interface without TLS.
    """
    _, address, authority = argv
    retry_soon(run_clientapp, "pull_and_inflate_object_from_tree")
    threading.Thread(target=end_with_parent, daemon=True).start()
    certificates = Path(authority).read_bytes() if authority else None
    connect = partial(RuntimeHttpClient.from_server_address, address, not authority, certificates)
    tasks = connect(
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    nodes: dict[str, Prepared] = {}
    begin = time.monotonic()
    while True:
        token = tasks.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])).token
        if not token:
            time.sleep(pause(time.monotonic() - begin, LONGEST_PAUSE))
            continue
        own: Any = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), RuntimeTokenHttpInterceptor(token)]
        with connect(interceptors=own, retry_invoker=make_simple_http_retry_invoker()) as client:
            setattr(client, "PullMessages", once_stored(client.PullMessages))  # noqa: B010
            answer_task(client, nodes)
        begin = time.monotonic()


def once_stored(pull: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`PullMessages`, asked until the message is there: a SuperNode announces the task first."""

    def patient(request: Any) -> Any:
        begin = time.monotonic()
        while not (found := pull(request)).messages_list and (waited := time.monotonic() - begin) < PATIENCE:
            time.sleep(pause(waited, LONGEST_PAUSE))
        return found

    return patient


def answer_task(client: Any, nodes: dict[str, Prepared]) -> None:
    """Answers one message, as Flower's `run_clientapp` does.

    Args:
      client: the SuperNode's own interface, with the token of the message's task.
      nodes: see `fdgjax.deploy.request_handlers.serve`.

    Raises:
      SystemExit: anything went wrong that is not a `UserError`. The server is told, and a new process begins anew.
    """
    # Where the task is no longer ours, it ends this process by SIGINT, as it ends Flower's.
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    message, context, reply, problem = None, None, None, ""
    try:
        message, context, _, _ = run_clientapp.pull_task_input(client)
        reply = reply_to(message, context, nodes)
    except Exception as error:  # whatever it is, the server is told, as by Flower's own process
        problem = f"{type(error)}:<'{error}'>"
        logging.getLogger("flwr").exception("the node's worker failed")
        if message is not None:
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, problem), reply_to=message)
    if reply is not None and context is not None:
        run_clientapp.push_message(client, reply, context)
    heartbeat.stop()  # before the task ends, as a finished task has no heart
    run_clientapp.push_task_output(client, context, SubStatus.FAILED if problem else SubStatus.COMPLETED, problem)
    if problem:
        raise SystemExit(FAILED)


if __name__ == "__main__":
    main(sys.argv)
