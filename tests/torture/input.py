"""Bad input, by the hundred: command lines that cannot be meant, and folders of images as nobody should have them."""

import math
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.torture.processes import MISTAKE, Ended, run
from tests.torture.trials import Bench, Outcome

PATIENCE = 120.0
STARTED = 77
"""The exit status of a command line that was taken, where training would begin."""
LINES = 20
"""Command lines in one process."""

NEVER: Mapping[type, tuple[str, ...]] = {
    bool: ("maybe", "", "2", "tru", "1.0.0"),
    int: ("x", "", "1.5", "nan", "inf", "1e9", "0x", "-9999999999", "\u0663\u0663.", "--", "None"),
    float: (
        "x",
        "",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-1e30",
        "1,5",
        "NaN%",
        "\ud83e\udd84".encode("utf-16", "surrogatepass").decode("utf-16"),
    ),
    str: ("nosuch", "fed avg", "\x1b[2J", "a\nb", "x" * 5000, "../../etc/passwd", "$(reboot)", "%s%n"),
}
"""What no key of a type can mean."""
FREE = ("data.dir", "data.cache_dir", "data.domain", "data.class")
"""Keys that may hold any text."""
BROKEN = (
    "--config=configs/nosuch.py", "--config=/dev/null", "--config=README.md", "--config=", "--wokdir=x", "-h=3",
    "--config.rounds", "--config.=3", "--config.model=3", "--config.data.name.x=3", "rounds=3", "\udcff\udcfe",
)  # fmt: skip


def keys_of(method: str) -> dict[str, Any]:
    """Every key of a method's config with its default."""
    from fdgjax.config import make_config
    from fdgjax.config.command_line import leaves

    return leaves(make_config(method))


def bad_line(chance: random.Random, workdir: Path) -> list[str]:
    """A command line with one mistake."""
    from fdgjax.methods import METHODS

    method = chance.choice(sorted(METHODS))
    good = [f"--config=configs/{method}.py", f"--workdir={workdir}"]
    if chance.random() < 0.15:
        return [*good, chance.choice(BROKEN)]
    keys = {key: value for key, value in keys_of(method).items() if key not in FREE}
    key = chance.choice(sorted(keys))
    if chance.random() < 0.1:
        unknown = [f"{key[:-1]}{end}" for end in "xz_." if f"{key[:-1]}{end}" not in keys]
        return [*good, f"--config.{chance.choice(unknown)}=1"]
    return [*good, f"--config.{key}={chance.choice(NEVER[type(keys[key])])}"]


def command_lines(bench: Bench) -> Outcome:
    """Each ends with status 2 and one line, before any training."""
    folder = bench.fresh("lines")
    lines = [bad_line(bench.random, folder / str(number)) for number in range(LINES)]
    batch = list(lines)

    def work() -> int:
        import fdgjax.run.runner as recorded
        from fdgjax.cli.train import main

        def begins(*arguments: Any, **named: Any) -> Any:
            os._exit(STARTED)

        recorded.train_with_records = begins
        return MISTAKE if all(main(["fdgjax", *line]) == MISTAKE for line in lines) else 0

    wrong = []
    ended = run(work, folder / "log.txt")
    if verdict(ended, LINES):
        # One of them: each alone.
        for line in batch:
            lines[:] = [line]
            if said := verdict(run(work, folder / "log.txt"), 1):
                wrong.append(f"{line[-1]!a}: {said}")
    wrong += [f"left a folder: {batch[int(path.name)][-1]!a}" for path in folder.iterdir() if path.name.isdecimal()]
    shutil.rmtree(folder)
    return Outcome(f"{LINES} command lines", LINES, "; ".join(wrong), True)


def verdict(ended: Ended, lines: int) -> str:
    """What is wrong with command lines that should each be refused in one line."""
    if ended.status == STARTED:
        return "taken as good"
    said = [line for line in ended.text.splitlines() if line.startswith("fdgjax: ")]
    if "Traceback" in ended.text or ended.status != MISTAKE or len(said) != lines:
        return f"status {ended.status}, {len(said)} lines: {ended.text.strip()[-200:]}"
    return ""


def picture(path: Path, chance: random.Random) -> None:
    """A small image of a random format."""
    pixels = np.random.default_rng(chance.randrange(2**32)).integers(0, 256, (6, 5, 3), np.uint8)
    Image.fromarray(pixels).save(path.with_suffix(chance.choice((".png", ".jpg", ".webp", ".bmp", ".tif", ".gif"))))


def some(folder: Path, chance: random.Random, files: bool = True) -> Path:
    """A file or a folder below a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() == files and not path.is_symlink())
    return chance.choice(found) if found else folder


def folder_for_a_file(root: Path, chance: random.Random) -> None:
    """One of the files is a folder."""
    file = some(root, chance)
    file.unlink()
    file.mkdir()


SPOILS: Mapping[str, Callable[[Path, random.Random], object]] = {
    "a file cut short": lambda root, c: os.truncate(p := some(root, c), p.stat().st_size // 2),
    "an empty file": lambda root, c: os.truncate(some(root, c), 0),
    "a flipped byte": lambda root, c: (p := some(root, c)).write_bytes(bytes([255]) + p.read_bytes()[1:]),
    "text for an image": lambda root, c: some(root, c).write_text("hello"),
    "a link in circles": lambda root, c: (some(root, c, False) / "loop").symlink_to(root),
    "a link to nowhere": lambda root, c: (some(root, c, False) / "gone.png").symlink_to("nowhere"),
    "a name that is no text": lambda root, c: Path(os.fsdecode(bytes(some(root, c, False)) + b"/\xff\xfe")).mkdir(),
    "a long name": lambda root, c: (some(root, c, False) / ("n" * 250)).mkdir(),
    "a name with control characters": lambda root, c: some(root, c, False).rename(root / "a\n\x1b[2Jb"),
    "an empty folder": lambda root, c: (some(root, c, False) / "empty").mkdir(),
    "a folder of another system": lambda root, c: (some(root, c, False) / "__MACOSX").mkdir(),
    "a class gone": lambda root, c: shutil.rmtree(some(root, c, False)),
    "a folder for a file": folder_for_a_file,
    "a copy": lambda root, c: shutil.copy(some(root, c), some(root, c, False) / "copy.png"),
    "a pipe": lambda root, c: os.mkfifo(some(root, c, False) / "pipe.png"),
    "a level more": lambda root, c: os.renames(p := some(root, c), p.parent / "deep/x.png"),
    "a picture of a billion pixels": lambda root, c: some(root, c).write_bytes(
        b"BM" + bytes(8) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
        + (40_000).to_bytes(4, "little") * 2 + b"\1\0\30\0" + bytes(24)
    ),
}  # fmt: skip


def image_folder(bench: Bench) -> Outcome:
    """One to three things are wrong with a folder of images: it is refused in one line, or read."""
    folder, chance = bench.fresh("folder"), bench.random
    root = folder / "data"
    for domain in "abc":
        for name in ("cat", "dog"):
            (root / domain / name).mkdir(parents=True)
            for number in range(8):
                picture(root / domain / name / str(number), chance)
    kinds = chance.sample(sorted(SPOILS), chance.randint(1, 3))
    for kind in kinds:
        try:
            SPOILS[kind](root, chance)
        except OSError:
            continue

    def work() -> int:
        from fdgjax.config import make_config, read_config
        from fdgjax.experiments import build
        from fdgjax.utils.command import command

        def main(argv: object) -> int:
            config = make_config("fedavg", "folder")
            config.data.update({"dir": str(root), "cache_dir": str(folder / "cache"), "image_size": 8})
            config.data.target = ""
            config.model.name, config.model.width = "digits_cnn", 0.1
            assert math.isfinite(build(read_config(config)).facts["parameters"])
            return 0

        return command(main)([])

    ended = run(work, folder / "log.txt", PATIENCE)
    shutil.rmtree(folder)
    return Outcome(" and ".join(kinds), 1, ended.complaint, ended.status == MISTAKE)
