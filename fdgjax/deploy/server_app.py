"""Flower's ServerApp: the server's rounds over Flower's grid; its settings are the app's (`fdgjax.deploy.app`)."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fdgjax.deploy.flower_transport import FlowerTransport
from fdgjax.deploy.image_folder import decoded_folder
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import make_server
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
    images = str(settings["images"])
    nothing = OwnSamples(np.zeros((0, *terms.image_shape), np.uint8), np.zeros(0, np.int32))
    try:
        agreed = agree(terms)
        if agreed.method.server_training and not images:
            raise UserError(
                f"'{terms.config.method.name}' trains at the server on labelled images; expected their folder; give "
                "--images DIR when the app is made"
            )
        own = decoded_folder(Path(images), terms.class_names, terms.image_shape, folder) if images else nothing
        policy = Policy(float(settings["deadline"]), int(settings["least"]))
        transport = FlowerTransport(grid, bool(settings["authentication"]), tell)
        run_rounds(make_server(agreed, own), transport, folder, policy, tell)
    except UserError as error:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FAILED, {"error": str(error)})
        tell(f"fdgjax: {error}")
        raise SystemExit(2) from error


def tell(line: str) -> None:
    """Prints a line, which `flwr run --stream` and `flwr log` show."""
    print(json.loads(json.dumps(line)), flush=True)
