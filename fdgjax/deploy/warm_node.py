"""Flower's SuperNode with one long-lived process for all messages: `fdgjax flower --node`.

`flower-supernode` starts a Python process for each message, which imports, traces and loads compiled programs anew.
Here the SuperNode, which connects to the server, starts none (its `--isolation process`); beside it runs
`fdgjax.deploy.worker`, which answers one message after the other. If that process ends, it is started again, and the
server repeats the request that it did not answer. If it ends in the middle of an answer, or before it has received the
message that it asked for, the node as a whole begins anew: the SuperNode would wait for the rest for ever, and the
server with it.
"""

import argparse
import logging
import os
import sys
import threading
from collections.abc import Sequence

from fdgjax.deploy.node_settings import check_settings
from fdgjax.deploy.processes import keep_running
from fdgjax.deploy.server_check import check_server
from fdgjax.deploy.waiting import NeverSentError, expect_parts, expect_tasks, look_soon, retry_soon
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError

PATIENCE = 30.0
"""Seconds in which the worker hands over all parts of an answer, from the first that is not there."""


@command
def main(argv: Sequence[str]) -> int:
    """Runs the SuperNode with the words of `flower-supernode`, until it ends.

    Raises:
      UserError: settings of the node that it cannot have; a server that cannot be trusted, or whose clock differs;
        `--isolation`, which is chosen here; or a version of Flower that has other parts.
    """
    words = list(argv[1:])
    try:
        from flwr.common.constant import Status
        from flwr.supernode import start_client_internal
        from flwr.supernode.cli.flower_supernode import flower_supernode

        start = worker_command(words)
        check_settings(words)
        check_server(words)
        look_soon(start_client_internal)  # Flower looks for messages every 3 seconds, for answers twice a second
        retry_soon(start_client_internal, "pull_objects")
        expect_parts(start_client_internal, PATIENCE)
        expect_tasks(start_client_internal, Status.FINISHED)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"fdgjax flower --node needs parts of Flower that are not installed ({error}); expected Flower 1.41 or "
            "1.42; pip install 'fdgjax[flower]' 'flwr<1.43', or start flower-supernode"
        ) from error
    # A daemon: the worker ends by itself when this process does, however it does.
    threading.Thread(target=keep_running, args=(start,), daemon=True).start()
    sys.argv = ["flower-supernode", "--isolation", "process", *words]
    try:
        flower_supernode()
    except NeverSentError:
        logging.getLogger("flwr").warning(
            "an answer, or its rest, never comes, as its worker ended; the node begins anew"
        )
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0


def worker_command(words: Sequence[str]) -> list[str]:
    """The worker's command line, for a SuperNode with these words. Raises like `main`."""
    from flwr.supercore.address import resolve_bind_address
    from flwr.supercore.constant import SUPERNODE_UVICORN_DEFAULT_PORT, UVICORN_DEFAULT_HOST

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default=UVICORN_DEFAULT_HOST)
    parser.add_argument("--port", default=str(SUPERNODE_UVICORN_DEFAULT_PORT))
    parser.add_argument("--ssl-ca-certfile", default="")
    parser.add_argument("--isolation", default="")
    parser.add_argument("--superexec-auth-secret-file", default="")
    known, _ = parser.parse_known_args(list(words))
    for name in ("isolation", "superexec_auth_secret_file"):
        if getattr(known, name):
            raise UserError(
                f"fdgjax flower --node got --{name.replace('_', '-')}, which it chooses itself; expected the other "
                "options of flower-supernode; leave it out, or start flower-supernode"
            )
    host = f"[{known.host}]" if ":" in known.host else known.host
    address = resolve_bind_address(f"{host}:{known.port}")
    return [sys.executable, "-m", "fdgjax.deploy.worker", address, known.ssl_ca_certfile]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
