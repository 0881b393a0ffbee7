"""What a run used of a user's program.

Its `config.json` records which of its names were registered, and from which file; these must be registered again before
the run is opened.
"""

import hashlib
import shlex
from collections.abc import Mapping
from typing import Any

from fdgjax.config.register import REGISTRIES
from fdgjax.config.schema import Config
from fdgjax.evaluation.probability_figures import names_in
from fdgjax.methods import METHODS, Entry
from fdgjax.models.program_text import attributes_text
from fdgjax.utils.command import with_words
from fdgjax.utils.errors import UserError
from fdgjax.utils.words import words_of

REGISTERED = "registered"
"""The key of `config.json` with what a user's program registered for the run: `{key: {"name": ..., "from": FILE}}`; a
further name of one config key has the key `KEY=NAME`. A method has its `program`, too, see `program_of`."""
PROGRAM = "program"


def provenance(config: Config) -> dict[str, Any]:
    """The entry of `config.json` on the registered names that the run uses; empty if it uses the package's own only."""
    names = {
        "method.name": [config.method.name],
        "model.name": [config.model.name],
        "data.name": [config.data.name],
        "data.augmentation": words_of(config.data.augmentation),
        "figures": names_in(config.figures),
        "defence.rule": [config.defence.rule],
    }
    users = {key: [name for name in each if name not in REGISTRIES[key].own] for key, each in names.items()}
    found = {
        f"{key}={name}" if place else key: {"name": name, "from": REGISTRIES[key].origins.get(name, "")}
        for key, each in users.items()
        for place, name in enumerate(dict.fromkeys(each))
    }
    if "method.name" in found:
        found["method.name"][PROGRAM] = program_of(METHODS[config.method.name])
    return {REGISTERED: found} if found else {}


def program_of(entry: Entry) -> str:
    """What tells the program of a user's method from another: 8 hexadecimal digits of the text of its functions and of
    what these name in their own file (`fdgjax.models.program_text`)."""
    texts = attributes_text((entry.make, entry.hyper), set())
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:8]


def registering_files(registered: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The files that register names, by entries of `provenance`."""
    return sorted({one["from"] for one in registered.values() if one["from"]})


def check_registered(where: str, content: Mapping[str, Any]) -> None:
    """Raises a `UserError` if the run uses names that are not registered; it says which, and what file registers them.

    Args:
      where: the run's folder.
      content: the content of its `config.json`.
    """
    entries = {key: REGISTRIES[key.partition("=")[0]] for key in content.get(REGISTERED, {})}
    missing = {key: one for key, one in content.get(REGISTERED, {}).items() if one["name"] not in entries[key]}
    if not missing:
        return
    named = {key: f"the {entries[key].kind} '{one['name']}'" for key, one in missing.items()}
    files = registering_files(missing)
    homeless = " and ".join(named[key] for key, one in missing.items() if not one["from"])
    again = f"repeat the command as `fdgjax {shlex.join(with_words(files))} ...`" if files else ""
    give = f"give {homeless} to fdgjax.open_run, or to --with a FILE that registers it" if homeless else ""
    raise UserError(
        f"{where} needs {' and '.join(named.values())}, of the program that trained it; expected it to be registered: "
        + ", and ".join(filter(None, (again, give)))
    )
