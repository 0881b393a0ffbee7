"""Folders and logs of a run of several processes: only process 0 owns the folder and writes; all processes read it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from fdgjax.config import Config, for_seed, seeds_of
from fdgjax.distributed import broadcast, is_coordinator
from fdgjax.evaluation.metrics import Record
from fdgjax.loggers import Log
from fdgjax.run.records import Workdir, lock_workdir, open_log, open_seeds
from fdgjax.utils.checksums import sha256
from fdgjax.utils.errors import UserError

SHARED_SECONDS = 60.0
"""How long a file system shared by machines may take to show one machine what another wrote."""


@contextlib.contextmanager
def lock_or_see(path: Path, say: Callable[[str], None]) -> Iterator[Workdir]:
    """The run's folder: `lock_workdir` in process 0, only its path in the others. Raises like `lock_workdir`."""
    with contextlib.ExitStack() as held:

        def own() -> None:
            held.enter_context(lock_workdir(path, say))

        broadcast(own)
        yield Workdir(path)


def check_shared(workdir: Workdir) -> None:
    """Raises a `UserError` in a process that does not see process 0's folder."""
    wanted, rank = broadcast(lambda: sha256(workdir.config)), jax.process_index()
    deadline = time.monotonic() + SHARED_SECONDS
    while not sees(workdir.config, wanted):
        if time.monotonic() > deadline:
            raise UserError(
                f"workdir {workdir.path} is another folder in process {rank} than in process 0; expected one that all "
                "see; choose a --workdir on a file system that the machines share"
            )
        time.sleep(0.2)


def sees(file: Path, wanted: str) -> bool:
    """Whether the file exists and has the checksum `wanted`."""
    with contextlib.suppress(OSError):
        return sha256(file) == wanted
    return False


def logs_of(workdir: Workdir, config: Config, records: list[list[Record]], say: Callable[[str], None]) -> list[Log]:
    """Each seed's log, for its rounds so far; in processes other than process 0, logs that write nothing."""
    if not is_coordinator():
        return [Log(lambda record: None, lambda: None) for _ in records]
    each = zip(open_seeds(workdir, config), seeds_of(config), records, strict=True)
    return [open_log(folder, for_seed(config, seed), of_seed, say) for folder, seed, of_seed in each]
