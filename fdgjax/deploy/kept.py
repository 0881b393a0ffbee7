"""What a node keeps in its folder of states: its state between rounds, and its models."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fdgjax.config import changed_keys, experiment_identity, to_plain
from fdgjax.contract import PyTree
from fdgjax.data.encoding import to_plain as encoding_to_plain
from fdgjax.data.sources.array_files import DAMAGED
from fdgjax.deploy.leaves import prefixed, without_prefix
from fdgjax.deploy.node import NodeState
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.terms import Terms, federation_facts, to_words
from fdgjax.deploy.wire import WORKDIR, Request
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_bytes
from fdgjax.utils.variables import flatten

KEYS_SINCE = ("group", "split", "owner", "frozen_statistics", "figures_threshold")
"""Keys, of `config.data`, `config.model` or no group, newer than states that are named after the changed keys alone."""


def state_file(settings: NodeSettings, terms: Terms) -> Path:
    """The file of this experiment's state; an experiment with other terms has another file. Its folder is named after
    the keys that are not at their defaults, so that a key that is added to the package changes no name; before, it was
    after all keys, and a folder of that name is used where there is one."""
    own = experiment_identity(to_plain(terms.config))
    every = of_then({**own, **{group: of_then(own[group]) for group in ("data", "model")}, "rounds": 0})
    changed = {"method": terms.config.method.name, **changed_keys(terms.config), "rounds": 0}
    before, now = (
        settings.states / f"{experiment_digest(named, terms)}-client{settings.client}"
        for named in (every, dict(sorted(changed.items())))
    )
    return (before if before.is_dir() else now) / "state.npz"


def of_then(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys without those of `KEYS_SINCE` that are not given."""
    return {key: value for key, value in keys.items() if value or key not in KEYS_SINCE}


def experiment_digest(keys: Mapping[str, Any], terms: Terms) -> str:
    """A digest of these keys of the config and of what else the parties agreed on."""
    encoding = "" if terms.encoding is None else repr(encoding_to_plain(terms.encoding))
    return hashlib.sha256(repr((keys, *federation_facts(terms).values(), encoding)).encode()).hexdigest()[:16]


def refuse_older(file: Path, client: int, round_: int, run: str) -> None:
    """Raises a `UserError` if the node has trained a later round of the same run: a request that is delivered once more
    after it must not replace the state of the later round."""
    kept = read_kept(file)
    if kept and kept.run == run and kept.trained > round_:
        raise UserError(
            f"client {client} got the request of round {round_ + 1} and has trained round {kept.trained + 1}; expected "
            "a later one; nothing is to be done: an old message came once more, and the state stays as it is"
        )


def read_kept(file: Path) -> NodeState | None:
    """What `write_kept` wrote; None if there is no file.

    Raises:
      UserError: a damaged file.
    """
    if not file.exists():
        return None
    try:
        with np.load(file, allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    except DAMAGED as error:
        raise UserError(
            f"{file} is damaged ({type(error).__name__}); expected what this node wrote; restore it from a copy, or "
            "remove it and start the node with fresh=true"
        ) from error
    accepted, trained = (int(number) for number in arrays.pop("rounds"))
    run = str(arrays.pop("run", ""))
    before, after = (without_prefix(side, arrays) for side in ("before", "after"))
    return NodeState(accepted, before, trained, after, run)


def write_kept(file: Path, kept: NodeState) -> None:
    """Writes what the node keeps, atomically and with the checksums of the zip format."""
    make_folder(file.parent)
    encoded = io.BytesIO()
    sides = prefixed("before", kept.before) | prefixed("after", kept.after)
    np.savez(
        encoded, allow_pickle=False, rounds=np.array([kept.accepted, kept.trained]), run=np.array(kept.run), **sides
    )
    write_bytes(file, encoded.getvalue())


def keep_model(folder: Path, own: PyTree, selected: int, facts: Mapping[str, str]) -> None:
    """Writes the model of a round, with what it is (`facts_of_model`) and of which run (`facts_of_run`), and removes
    all others but the one of the round that is selected so far. Where that of a later round of the same run is kept,
    an old request came once more, and nothing is done."""
    round_, files = int(facts["round"]), list(folder.glob(model_file(folder, 0).name.replace("0", "*")))
    for there in map(facts_in, files):
        if there.get("run") == facts["run"] and int(there["round"]) > round_:
            return
    write_model(model_file(folder, round_), own, facts)
    for file in files:
        if file not in (model_file(folder, round_), model_file(folder, selected)):
            file.unlink(missing_ok=True)


def kept_model(folder: Path, round_: int, request: Request) -> Path | None:
    """The kept model of a round of the run that a request belongs to; None if there is none, as where the file is of an
    earlier run of the same config."""
    file = model_file(folder, round_)
    return file if facts_in(file).get(WORKDIR) == request.facts[WORKDIR] else None


def facts_of_run(request: Request) -> dict[str, str]:
    """What the file of a kept model says of the run: the server's folder, and what `NodeState.run` has."""
    return {WORKDIR: str(request.facts[WORKDIR]), "run": request.run}


def facts_in(file: Path) -> Mapping[str, str]:
    """What the file of a model says of it; empty if there is no file, or a damaged one."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            return opened.metadata() or {}
    except (FileNotFoundError, SafetensorError):
        return {}


def model_file(folder: Path, round_: int) -> Path:
    """The model of an evaluated round, kept until the run's end."""
    return folder / f"evaluated-{round_}.safetensors"


MODEL = "model.safetensors"
"""The file of the model that a party has in the end."""
FACTS = ("terms", "round", "client")
"""What the file of a model says of it; see `facts_of_model`."""


def facts_of_model(terms: Terms, round_: int, client: int) -> dict[str, str]:
    """What the file of a model says of it, in words: the terms, the number of rounds, and the client whose model it is,
    -1 for those of an unseen domain."""
    return dict(zip(FACTS, (to_words(terms), str(round_), str(client)), strict=True))


def write_model(file: Path, variables: PyTree, facts: Mapping[str, str]) -> None:
    """Writes a model's variables by their paths, with what it is (`facts_of_model`); its folder is made."""
    from safetensors.numpy import save

    make_folder(file.parent)  # a client that no round has selected yet has no state, and so no folder
    model = flatten(jax.device_get(variables))
    write_bytes(file, save({path: np.ascontiguousarray(leaf) for path, leaf in model.items()}, dict(facts)))
