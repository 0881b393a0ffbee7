"""Flower's ServerApp: the server's rounds over Flower's grid; its settings are the app's (`fdgjax.deploy.app`)."""

import logging
from contextlib import suppress
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import http_grid

from fdgjax.deploy.flower_transport import FlowerTransport
from fdgjax.deploy.folder import open_folder
from fdgjax.deploy.message_log import MESSAGES, Audited
from fdgjax.deploy.own_samples import own_samples
from fdgjax.deploy.privacy import with_noise
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import make_server
from fdgjax.deploy.statistics import with_statistics
from fdgjax.deploy.terms import agree, from_words, no_samples
from fdgjax.deploy.waiting import retry_soon
from fdgjax.run.compilation_cache import remember_all_programs
from fdgjax.utils.errors import UserError, system_words
from fdgjax.utils.files import write_json

app = ServerApp()
FAILED = "failed.json"
"""The file in the workdir with the error line of a failed run."""
GOES_ON = "start the run again: it goes on from the last complete checkpoint"


class RunFailedError(Exception):
    """The end of a run that failed. Flower sends the server's last lines and the run's status after an exception alone,
    not after a `SystemExit`; its words are the details of the status."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs all rounds, from the newest checkpoint on.

    Raises:
      RunFailedError: a mistake in the settings or at a node, or a fault of the system; its line was told.
    """
    logging.getLogger("flwr").addFilter(without_traceback)
    settings = context.run_config
    folder = Path(str(settings["workdir"]))
    samples = str(settings["samples"])
    try:
        terms = from_words(str(settings["terms"]))
        open_folder(folder, terms)
        (folder / FAILED).unlink(missing_ok=True)
        remember_all_programs(folder / "compiled")
        if agree(terms).method.server_training and not samples:
            raise UserError(
                f"'{terms.config.method.name}' trains at the server on labelled samples; expected their folder or "
                "table; give --images DIR or --table FILE when the app is made"
            )
        own = own_samples(Path(samples), terms, folder) if samples else no_samples(terms)
        policy = Policy(float(settings["deadline"]), int(settings["least"]))
        flower = FlowerTransport(grid, bool(settings["authentication"]), tell)
        retry_soon(http_grid, "pull_objects", flower.left)
        transport = Audited(flower, folder / MESSAGES)
        agreed = agree(with_noise(with_statistics(terms, own, transport), transport))
        run_rounds(make_server(agreed, own), transport, folder, policy, tell)
    except UserError as error:
        raise ended(folder, str(error)) from error
    except OSError as error:
        raise ended(folder, system_words(error, GOES_ON)) from error


def ended(folder: Path, line: str) -> RunFailedError:
    """The end of a run that failed, after its line is told and written, if the disk has room for it."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FAILED, {"error": line})
    tell(f"fdgjax: {line}")
    return RunFailedError(line)


def without_traceback(record: logging.LogRecord) -> bool:
    """For Flower's log: an error whose line was told needs no traceback."""
    if record.exc_info and isinstance(record.exc_info[1], RunFailedError):
        record.exc_info = None
    return True


def tell(line: str) -> None:
    """Prints a line, which `flwr run --stream` and `flwr log` show."""
    print(line, flush=True)
