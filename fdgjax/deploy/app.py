"""The app folder for `flwr run`: a pyproject.toml with the terms; each side runs the code of its installed package.

The server thus ships settings and no program: a node runs the fdgjax that its own administrators installed.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from fdgjax.deploy.terms import Terms, to_words
from fdgjax.utils.files import make_folder, write_text


class ServerSettings(NamedTuple):
    """The server's settings.

    terms: what all parties agree on. workdir: where the server keeps checkpoints and records. samples: the server's own
    labelled samples, a folder of images or a table; '' for none. deadline, least: see `fdgjax.deploy.rounds.Policy`.
    authentication: whether a node must be registered under its client's name.
    """

    terms: Terms
    workdir: Path
    samples: str = ""
    deadline: float = 0.0
    least: int = 1
    authentication: bool = False


def write_app(folder: Path, settings: ServerSettings) -> None:
    """Writes the app's folder, for `flwr run FOLDER`."""
    values = {**settings._asdict(), "terms": to_words(settings.terms), "workdir": str(settings.workdir.absolute())}
    # JSON strings, numbers and booleans are valid TOML.
    config = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    make_folder(folder)
    write_text(
        folder / "pyproject.toml",
        f"""[project]
name = "fdgjax-federation"
version = "{version("fdgjax").partition(".dev")[0]}"
description = "fdgjax: {settings.terms.config.method.name}"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fdgjax"

[tool.flwr.app.components]
serverapp = "fdgjax.deploy.server_app:app"
clientapp = "fdgjax.deploy.client_app:app"

[tool.flwr.app.config]
{config}
""",
    )
