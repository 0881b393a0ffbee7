"""Flower's ServerApp: the server's rounds over Flower's grid; its settings are the app's (`fdgjax.deploy.app`)."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fdgjax.deploy.flower_transport import FlowerTransport
from fdgjax.deploy.own_samples import own_samples
from fdgjax.deploy.privacy import with_noise
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import make_server
from fdgjax.deploy.statistics import with_statistics
from fdgjax.deploy.terms import OwnSamples, agree, from_words
from fdgjax.run.compilation_cache import remember_all_programs
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_json

app = ServerApp()
FAILED = "failed.json"
"""The file in the workdir with the error line of a failed run."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs all rounds, from the newest checkpoint on."""
    settings = context.run_config
    folder = Path(str(settings["workdir"]))
    remember_all_programs(folder / "compiled")
    terms = from_words(str(settings["terms"]))
    samples = str(settings["samples"])
    nothing = OwnSamples(np.zeros((0, *terms.sample_shape), terms.stored), np.zeros(0, np.int32))
    try:
        if agree(terms).method.server_training and not samples:
            raise UserError(
                f"'{terms.config.method.name}' trains at the server on labelled samples; expected their folder or "
                "table; give --images DIR or --table FILE when the app is made"
            )
        own = own_samples(Path(samples), terms, folder) if samples else nothing
        policy = Policy(float(settings["deadline"]), int(settings["least"]))
        transport = FlowerTransport(grid, bool(settings["authentication"]), tell)
        agreed = agree(with_noise(with_statistics(terms, own, transport), transport))
        run_rounds(make_server(agreed, own), transport, folder, policy, tell)
    except UserError as error:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FAILED, {"error": str(error)})
        tell(f"fdgjax: {error}")
        raise SystemExit(2) from error


def tell(line: str) -> None:
    """Prints a line, which `flwr run --stream` and `flwr log` show."""
    print(json.loads(json.dumps(line)), flush=True)
