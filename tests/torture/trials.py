"""The faults: each trial commits one and says what came of it."""

import contextlib
import filecmp
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fdgjax.utils.checksums import Damaged
from tests.torture.processes import HANGS, KILLED, LIMIT, Ended, end, over, start, trains
from tests.torture.runs import METHODS, ROUNDS, Tortured, result_of

QUICK = ("fedavg", "fedavg", "fedavg", "hfedf", "fdse")
"""The runs of trials of which there are many."""


class Bench(NamedTuple):
    """What all trials share: a folder, decoded data, the undisturbed results, and the seconds that a run takes."""

    folder: Path
    cache: Path
    random: random.Random
    results: dict[str, dict]
    seconds: dict[str, float]

    def fresh(self, name: str) -> Path:
        """A new empty folder."""
        path = self.folder / f"{name}-{self.random.randrange(2**40):x}"
        path.mkdir()
        return path


class Outcome(NamedTuple):
    """Of one trial: what was done, how many faults that were, and what is wrong ('' for nothing).

    said: whether a fault was answered by one line instead of the undisturbed result.
    """

    what: str
    faults: int
    wrong: str
    said: bool = False


def undisturbed(bench: Bench, method: str) -> dict:
    """The result of a run that nothing disturbs, made once."""
    if method not in bench.results:
        tortured = Tortured(method, bench.fresh(f"undisturbed-{method}"), bench.cache)
        tortured.train()
        # Once more, with the data decoded and the programs compiled: so long a tortured run takes.
        shutil.rmtree(tortured.workdir)
        ended = tortured.train()
        if ended.status:
            raise RuntimeError(ended.text)
        bench.results[method], bench.seconds[method] = result_of(tortured.workdir), ended.seconds
    return bench.results[method]


def compare(bench: Bench, tortured: Tortured, ended: Ended) -> str:
    """What differs from the undisturbed result; '' for nothing. A run that was finished before reads no checkpoint."""
    finished, wanted = "finished before" in ended.text, undisturbed(bench, tortured.method)
    try:
        got = result_of(tortured.workdir, not finished)
    except (OSError, ValueError, RuntimeError, Damaged) as error:
        return f"no result: {error}"
    return ", ".join(f"another {key}" for key in got if wanted[key] != got[key])


def kill(bench: Bench) -> Outcome:
    """SIGKILL at random moments, cache building and the first save among them, until the run gets to its end."""
    method, kills = bench.random.choice(METHODS), 0
    undisturbed(bench, method)
    folder = bench.fresh("kill")
    own_cache = bench.random.random() < 0.3
    tortured = Tortured(method, folder, folder / "cache" if own_cache else bench.cache)
    while kills < 8:
        ended = tortured.train(kill_at=bench.random.uniform(0.05, 1.1) * bench.seconds[method])
        if ended.complaint or ended.status != KILLED:
            break
        kills += 1
    else:
        ended = tortured.train()
    wrong = ended.complaint or (ended.text if ended.status else compare(bench, tortured, ended))
    shutil.rmtree(folder)
    return Outcome(method, kills, wrong)


def flip(path: Path, chance: random.Random) -> None:
    """One bit is another."""
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path, random.Random], object]] = {
    "truncated": lambda path, chance: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path, chance: path.write_bytes(b""),
    "missing": lambda path, chance: path.unlink(),
    "flipped": flip,
    "garbage": lambda path, chance: path.write_bytes(chance.randbytes(200)),
}


def damaged(bench: Bench, folder: Path) -> str:
    """Damages one file below a folder, and says how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, kind = bench.random.choice(files), bench.random.choice(sorted(DAMAGES))
    DAMAGES[kind](path, bench.random)
    return f"{path.relative_to(folder)} {kind}"


def halfway(bench: Bench, method: str) -> Path:
    """A run killed between its rounds, or finished: made once each."""
    done = bench.random.choice((3, ROUNDS))
    source = bench.folder / f"halfway-{method}-{done}"
    if not source.exists():
        folder = bench.fresh("half")
        tortured = Tortured(method, folder, bench.cache)
        log = folder / "log.txt"
        child, begin = start(trains(tortured.arguments), log), time.monotonic()
        # A checkpoint is deleted two rounds later: whoever misses it has a finished run.
        saved = tortured.workdir / f"checkpoints/{done}/checksums.txt"
        while done < ROUNDS and not saved.exists() and not over(child) and time.monotonic() - begin < LIMIT:
            time.sleep(0.001)
        ended = end(child, log, begin, kill_at=0 if done < ROUNDS and saved.exists() else LIMIT)
        if ended.complaint:
            raise RuntimeError(f"{ended.complaint}: {ended.text}")
        folder.rename(source)
    return source


def damage_run(bench: Bench) -> Outcome:
    """One file of a run's folder is damaged; the run goes on to the same result, or says what is wrong."""
    method = bench.random.choice(QUICK)
    undisturbed(bench, method)
    source, folder = halfway(bench, method), bench.fresh("damage")
    shutil.copytree(source / "run", folder / "run")
    what = damaged(bench, folder / "run")
    tortured = Tortured(method, folder, bench.cache)
    ended = tortured.train()
    wrong = ended.complaint or ("" if ended.status else compare(bench, tortured, ended))
    shutil.rmtree(folder)
    return Outcome(what, 1, wrong, bool(ended.status))


def damage_cache(bench: Bench) -> Outcome:
    """One file of the decoded data is damaged; the data are decoded anew."""
    undisturbed(bench, "fedavg")
    folder = bench.fresh("cache")
    data = [path for path in bench.cache.iterdir() if path.name.startswith("rotated_digits")]
    for path in data:
        shutil.copytree(path, folder / "cache" / path.name)
    what = damaged(bench, folder / "cache")
    tortured = Tortured("fedavg", folder, folder / "cache")
    ended = tortured.train()
    wrong = ended.complaint or ("" if ended.status else compare(bench, tortured, ended))
    shutil.rmtree(folder)
    return Outcome(what, 1, wrong, bool(ended.status))


@contextlib.contextmanager
def mounted(image: Path, at: Path) -> Iterator[None]:
    """A file system in a file."""
    at.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def copy_moment(disk: Path, copy: Path) -> None:
    """The bytes of a disk at one moment, though the kernel may write to it meanwhile: a single copy could have an old
    block beside a later one that needs the new. Where two agree, each byte was that between them."""
    before = copy.with_name("before.img")
    shutil.copyfile(disk, copy)
    while not before.exists() or not filecmp.cmp(before, copy, shallow=False):
        copy.replace(before)
        shutil.copyfile(disk, copy)
    before.unlink()


def cut_power(bench: Bench) -> Outcome:
    """A run on a file system of its own, of which the disk is copied at a random moment, before what the kernel still
    holds was written; the run goes on from that copy."""
    method = bench.random.choice(QUICK)
    undisturbed(bench, method)
    folder = bench.fresh("cut")
    disk, copy = folder / "disk.img", folder / "copy.img"
    with disk.open("wb") as file:
        file.truncate(256 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", str(disk)], check=True)
    with mounted(disk, folder / "before"):
        tortured = Tortured(method, folder / "before", bench.cache)
        log = folder / "log.txt"
        begin = time.monotonic()
        child = start(trains(tortured.arguments), log)
        time.sleep(bench.random.uniform(0.3, 1.0) * bench.seconds[method])
        os.kill(child, signal.SIGSTOP)
        copy_moment(disk, copy)
        end(child, log, begin, kill_at=0)
    with mounted(copy, folder / "after"):
        left = sorted(p.name for p in (folder / "after").glob("run/checkpoints/*"))
        tortured = Tortured(method, folder / "after", bench.cache)
        ended = tortured.train()
        wrong = ended.complaint or (ended.text if ended.status else compare(bench, tortured, ended))
    if ended.status != HANGS:
        shutil.rmtree(folder)
    return Outcome(f"{method}, checkpoints {left}", 1, wrong)
