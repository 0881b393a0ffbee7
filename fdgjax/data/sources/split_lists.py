"""Lists of images for training, validation and tests, as data sets come with: PACS's `photo_train_kfold.txt` and
`photo_crossval_kfold.txt`, DomainNet's `clipart_train.txt` and `clipart_test.txt`.

A line is the path of an image, whose end is `<domain>/<class>/<file>`, perhaps with a label behind it, which is not
read. What a list is for is a word of its name.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fdgjax.data.given_splits import EXPECTED, Splits, field_in
from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.listing import is_folder, list_whole
from fdgjax.data.sources.source import read_bytes
from fdgjax.utils.errors import UserError, printable

LOGGER = logging.getLogger("fdgjax")
LABEL = re.compile(r"\s+-?\d+$")
"""The label behind a path."""


def listed_splits(names: Sequence[str], folder: str, own: Callable[[str], str] = str) -> Splits:
    """What images are for, by the lists in a folder; other files there are no lists.

    Args:
      names: of the images, `<domain>/<class>/<file>`.
      folder: with the lists, `*.txt`.
      own: the name of a domain or class in `names`, of a release's folder (`FolderLayout.own`).

    Raises:
      UserError: no folder, no list, a broken link, a list that is no text or for two splits by its name, an image both
        for training and validation, or lists without any of the images.
    """
    root = Path(folder).expanduser().absolute()
    expected = f"a folder with lists of images such as photo_train.txt, whose names have {EXPECTED}"
    if not is_folder(root):
        raise UserError(f"no folder {root} (config.data.split); expected {expected}")
    lists = {path: field_in(path.stem) for path in list_whole(root).others if path.suffix.lower() == ".txt"}
    lists = {path: field for path, field in lists.items() if field}
    if not lists:
        raise UserError(f"{root} has no lists (config.data.split); expected {expected}")
    places = {name: place for place, name in enumerate(names)}
    composed = {unicodedata.normalize("NFC", name): place for name, place in places.items()}
    each = {field: np.zeros(len(names), bool) for field in Splits._fields}
    foreign = list[str]()
    for path, field in lists.items():
        for name in paths_in(path, own):
            # Copies from macOS have accents as characters of their own, which look the same.
            place = places.get(name, composed.get(unicodedata.normalize("NFC", name)))
            if place is None:
                foreign.append(name)
            else:
                each[field][place] = True
    found = Splits(**each)
    if not found.used.any():
        got = f", such as {printable(foreign[0])}" if foreign else ""
        raise UserError(
            f"the {len(lists)} list(s) in {root} have none of the {len(names):,} images{got}; expected lines like "
            f"{printable(names[0])}"
        )
    if (both := np.flatnonzero(found.train & found.validation)).size:
        raise UserError(
            f"the lists in {root} have {both.size:,} image(s) both for training and for validation, such as "
            f"{printable(names[both[0]])}; expected each in one of them"
        )
    say_listed(found, root, list(dict.fromkeys(foreign)))
    return found


def lists_within(name: str, split: str, data_dir: str) -> Path | None:
    """The path of a folder with lists below that of the data, which moves with them; None where it lies elsewhere.

    Args:
      name: the data set's. split: as in `config.data`, of images a folder. data_dir: the folder of the data.
    """
    if not split or name not in LAYOUTS:
        return None
    place, root = (Path(one).expanduser().absolute() for one in (split, data_dir))
    return place.relative_to(root) if place.is_relative_to(root) else None


def paths_in(path: Path, own: Callable[[str], str]) -> list[str]:
    """The ends `<domain>/<class>/<file>` of a list's paths; own: see `listed_splits`. Raises a `UserError` if it cannot
    be read as text."""
    try:
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"the list {path} is no text in UTF-8 ({error}); expected a path in each line") from error
    paths = (LABEL.sub("", line.strip()) for line in lines if line.strip())
    ends = (one.replace("\\", "/").split("/")[-3:] for one in paths)
    return ["/".join([*map(own, folders), file]) for *folders, file in ends]


def say_listed(found: Splits, root: Path, foreign: Sequence[str]) -> None:
    """Logs how many images are for what, and warns of listed files that the data set lacks."""
    train, validation, test = (f"{int(part.sum()):,}" for part in found)
    counts = f"{train} images for training, {validation} for validation, {test} for tests"
    twice = int((found.test & (found.train | found.validation)).sum())
    both = f" ({twice:,} of them for training or validation, too: tests where their domain is unseen)" if twice else ""
    out = int((~found.used).sum())
    rest = f"; {out:,} images in no list take no part" if out else ""
    LOGGER.info(printable(f"lists in {root}: {counts}{both}{rest}"))
    if foreign:
        LOGGER.warning(printable(f"the lists in {root} have {len(foreign):,} other files, such as {foreign[0]}"))
