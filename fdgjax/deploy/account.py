"""A party's secret randomness, and its account of what it has released under differential privacy.

Whoever knows the seed of noise can subtract it, and whoever knows which samples a step took gains more than sampled
noise allows: all parties know `config.seed`. Under privacy, one party's draws (a node's samples, augmentations and
noise where samples are protected; the server's noise where clients are) therefore come from

    root(release) = ChaCha20 key HMAC-SHA256(secret, release)

with a secret of 32 bytes that never leaves the party's own folder. `release` is a fingerprint of all that the answer is
computed from: what was received, the row, the own samples, and the terms. The same request again thus gives the same
answer, which reveals nothing further; any other gives other noise, and is one more release. Noise that were the same
for another model would cancel in the difference of the two answers.

Each new release is entered in the party's account before it is sent, and refused where the privacy budget would be
exceeded.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.deploy.leaves import Leaves
from fdgjax.engine.privacy import Exposure, spent
from fdgjax.utils.chacha import secret_key
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import FOREVER, lock, make_folder, sync, write_json

SECRET, ACCOUNT = "secret.key", "privacy.json"
"""A party's files: the secret, and the account."""
SECRET_BYTES = 32


class Guard(NamedTuple):
    """What protects a party's releases, each given by its fingerprint.

    root: the root of the random draws of a release. charge: enters it in the account, and returns the epsilon spent;
    raises a `UserError` where the budget does not allow it.
    """

    root: Callable[[str], Any]
    charge: Callable[[str], float]


class Cost(NamedTuple):
    """What one release costs, and how much may be spent.

    exposure, noise, delta: see `fdgjax.engine.privacy.accounting`. most: the largest epsilon of the experiment.
    most_of_all: that of all experiments of the party's account together; 0 for no limit.
    """

    exposure: Exposure
    noise: float
    delta: float
    most: float
    most_of_all: float = 0.0


def fingerprint(*parts: Leaves | str | int) -> str:
    """A hash of words, numbers and arrays by path, in this order."""
    hashed = hashlib.sha256()

    def add(content: bytes) -> None:
        # With its length, so that no two lists of parts are the same bytes.
        hashed.update(len(content).to_bytes(8, "little"))
        hashed.update(content)

    for part in parts:
        if not isinstance(part, dict):
            add(repr(part).encode())
            continue
        add(f"{len(part)} arrays".encode())
        for path, leaf in part.items():
            array = np.ascontiguousarray(leaf)
            add(f"{path} {array.dtype} {array.shape}".encode())
            add(array.tobytes())
    return hashed.hexdigest()


def secret_in(folder: Path) -> bytes:
    """The secret of the party whose folder this is, made on first use after an empty account, and readable by its owner
    alone.

    Raises:
      UserError: a file that others can read, or a damaged one.
    """
    file = folder / SECRET
    if not file.exists():
        make_folder(folder)
        account = folder / ACCOUNT
        with lock(account.with_suffix(".lock"), FOREVER):
            if not account.exists():
                write_json(account, {})
        beside = folder / f".{SECRET}.{uuid.uuid4().hex}"
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secrets.token_bytes(SECRET_BYTES))
            opened.flush()
            os.fsync(opened.fileno())
        # Of two processes that do this at once, the first one's secret is both's.
        with contextlib.suppress(FileExistsError):
            os.link(beside, file)
        beside.unlink()
        sync(folder)
    if (mode := file.stat().st_mode & 0o777) & 0o077:
        raise UserError(f"{file} has the mode {mode:o}, with which others read it; expected 600; chmod 600 '{file}'")
    content = file.read_bytes()
    if len(content) != SECRET_BYTES:
        raise UserError(f"{file} has {len(content)} bytes; expected {SECRET_BYTES}; restore it from a copy")
    return content


def make_guard(folder: Path, run: str, cost: Cost) -> Guard:
    """A party's guard with the secret and the account in its folder.

    Args:
      folder: the party's own.
      run: names the experiment within the account.
      cost: of each release.
    """
    secret = secret_in(folder)

    def root(release: str) -> Any:
        return secret_key(hmac.digest(secret, release.encode(), hashlib.sha256))

    return Guard(root, lambda release: charge(folder / ACCOUNT, run, release, cost))


def charge(file: Path, run: str, release: str, cost: Cost) -> float:
    """Enters a release in an account, unless it is there already; returns the experiment's epsilon with it.

    Raises:
      UserError: a damaged account, or a release that would exceed the budget.
    """
    with lock(file.with_suffix(".lock"), FOREVER):
        held = read_account(file)
        own = held.get(run, {})
        after = held | {run: own | {release: [cost.noise, *cost.exposure]}}
        epsilon = spent_by([after[run]], cost.delta)
        if release not in own:
            total = spent_by(after.values(), cost.delta) if cost.most_of_all else 0.0
            refuse_spent(len(own), "the settings'", epsilon, cost.most)
            refuse_spent(sum(map(len, held.values())), "this node's own limit", total, cost.most_of_all)
            write_json(file, after)
    return epsilon


def refuse_short(file: Path, run: str, cost: Cost, rounds: int) -> None:
    """Raises a `UserError` if so many rounds, with all that the account holds, would exceed its limit: the last of them
    would be refused, and what the others had cost would be for nothing."""
    held = read_account(file)
    own = held.get(run, {})
    planned = own | {f"round {number}": [cost.noise, *cost.exposure] for number in range(len(own), rounds)}
    total = spent_by((held | {run: planned}).values(), cost.delta)
    if cost.most_of_all and exceeds(total, cost.most_of_all):
        raise UserError(
            f"the privacy budget is too small: after all {rounds} rounds this node would have spent "
            f"epsilon={total:.4g}; expected at most {cost.most_of_all:.4g}, this node's own limit; nothing is "
            "answered; ask for more noise (config.privacy) or fewer rounds"
        )


def spent_by(accounts: Iterable[Mapping[str, Sequence[Any]]], delta: float) -> float:
    """The epsilon of all releases of these experiments together."""
    entries = [entry for account in accounts for entry in account.values()]
    return spent([(Exposure(*exposure), float(noise)) for noise, *exposure in entries], delta)


def exceeds(epsilon: float, most: float) -> bool:
    """Whether an epsilon is above a limit, or NaN. The library's sums of the same numbers may differ in their last
    digits."""
    return not epsilon <= most * (1 + 1e-6)


def refuse_spent(given: int, whose: str, epsilon: float, most: float) -> None:
    """Raises a `UserError` if a further answer would exceed a limit."""
    if exceeds(epsilon, most):
        raise UserError(
            f"the privacy budget is spent: after {given} answers a further one would cost epsilon={epsilon:.4g}; "
            f"expected at most {most:.4g}, {whose}; nothing more is answered"
        )


def read_account(file: Path) -> dict[str, dict[str, list[Any]]]:
    """The releases of each experiment: noise multiplier and exposure by fingerprint; raises a `UserError` for a missing
    or damaged file, with which nobody knows what was spent."""
    try:
        found: dict[str, dict[str, list[Any]]] = json.loads(file.read_text())
        entries = [entry for account in found.values() for entry in account.values()]
        if any(len(entry) != 1 + len(Exposure._fields) for entry in entries):
            raise ValueError("an entry has another length")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file} cannot be read ({error}); expected the account of releases; restore a copy") from error
    return found
