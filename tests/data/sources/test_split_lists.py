"""Lists of images for training, validation and tests, as data sets come with."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.loading import load_data
from fdgjax.data.sources.split_lists import listed_splits
from fdgjax.utils.errors import UserError
from tests.data.sources.test_tables import written

NAMES = ("art/dog/1.jpg", "art/Alarm Clock/1.jpg", "art/dog/2.jpg", "photo/dog/1 2.jpg", "photo/dog/3.jpg")


def test_lists_of_any_writing_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {
        "art_train_kfold.txt": "art/dog/1.jpg 1\n/home/someone/PACS/art/Alarm Clock/1.jpg\t12\n\n",
        "art_crossval_kfold.txt": "\ufeffart/dog/2.jpg 1\r\n",
        "photo_train.txt": "PACS\\photo\\dog\\1 2.jpg\nphoto/cat/9.jpg 3\n",
        "photo_test.txt": "photo/dog/1 2.jpg 0\nphoto/cat/9.jpg 3\n",
        "classes.txt": "dog\n",
        "train.csv": "photo/dog/3.jpg\n",
    }
    with caplog.at_level("INFO"):
        found = listed_splits(NAMES, str(written(tmp_path, files)))
    assert [np.flatnonzero(part).tolist() for part in found] == [[0, 1, 3], [2], [3]]
    assert "3 images for training, 1 for validation, 1 for tests (1 of them" in caplog.text
    assert "1 images in no list take no part" in caplog.text
    assert "have 1 other files, such as photo/cat/9.jpg" in caplog.text


def test_accents_may_be_characters_of_their_own(tmp_path: Path) -> None:
    """As in copies from macOS: the same name to the eye. Of two names that are told apart each is listed by its own."""
    composed, apart = "art/caf\u00e9/1.jpg", "art/cafe\u0301/1.jpg"
    written(tmp_path, {"train.txt": f"{composed}\n"})
    assert listed_splits([apart, "art/dog/1.jpg"], str(tmp_path)).train.tolist() == [True, False]
    assert listed_splits([apart, composed], str(tmp_path)).train.tolist() == [False, True]
    written(tmp_path, {"train.txt": f"{apart}\n"})
    assert listed_splits([composed, "art/dog/1.jpg"], str(tmp_path)).train.tolist() == [True, False]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {},
            r"has no lists .*; expected a folder with lists of images such as photo_train.txt, whose names have tr",
        ),
        ({"labels.txt": "art/dog/1.jpg\n"}, "has no lists"),
        ({"train.txt": "dog/1.jpg\n"}, r"have none of the 5 images, such as dog/1.jpg; expected lines like art/dog/1"),
        ({"train.txt": ""}, "have none of the 5 images; expected lines like art/dog/1.jpg"),
        ({"train.txt": "art/dog/1.jpg\n", "val.txt": "art/dog/1.jpg\n"}, "have 1 image.* both for training and for"),
        ({"train_val.txt": "art/dog/1.jpg\n"}, "train_val is by its name for train and validation; expected one"),
    ],
)
def test_lists_that_say_nothing_or_two_things_are_one_line(files: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as error:
        listed_splits(NAMES, str(written(tmp_path, files)))
    assert "\n" not in str(error.value)


def test_what_is_no_folder_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no folder .*lists \(config.data.split\); expected a folder with lists"):
        listed_splits(NAMES, str(tmp_path / "lists"))
    (tmp_path / "train.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"the list .*train\.txt is no text in UTF-8"):
        listed_splits(NAMES, str(tmp_path))
    written(tmp_path, {"train.txt": "art/dog/1.jpg\n"})
    (tmp_path / "val.txt").symlink_to(tmp_path / "unfetched")
    with pytest.raises(UserError, match=r"val\.txt is a link that leads nowhere"):
        listed_splits(NAMES, str(tmp_path))


def test_images_are_matched_with_their_lists(tmp_path: Path) -> None:
    """The colour of an image says what it is for."""
    colours = {"train": 50, "val": 150, "test": 250}
    lists = dict.fromkeys(colours, "")
    for place, (domain, label, number) in enumerate(np.ndindex(2, 2, 6)):
        split = tuple(colours)[place % 3]
        file = tmp_path / "images" / "xy"[domain] / "ab"[label] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (colours[split],) * 3).save(file)
        lists[split] += f"{file}\n"
    written(tmp_path, {f"{split}.txt": text for split, text in lists.items()})
    images, cache = str(tmp_path / "images"), str(tmp_path / "cache")
    data = load_data("folder", data_dir=images, cache_dir=cache, image_size=4, split=str(tmp_path))
    assert data.splits is not None
    for part, colour in zip(data.splits, colours.values(), strict=True):
        assert part.sum() == 8
        assert (np.asarray(data.inputs)[part] == colour).all()


def test_lists_may_spell_folders_as_releases_do(tmp_path: Path) -> None:
    """`Caltech/backpack` of one release is `caltech/back_pack` here, and lists of one fit the images of another."""
    layout, lists = LAYOUTS["office_caltech10"], ""
    for domain in ("Caltech", "amazon", "dslr", "webcam"):
        for label in layout.classes:
            file = tmp_path / "images" / domain / label.replace("back_pack", "backpack") / "1.png"
            file.parent.mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(file)
            lists += f"{domain}/{label}/1.png\n{file}\n"
    written(tmp_path, {"train.txt": lists})
    images, cache = str(tmp_path / "images"), str(tmp_path / "cache")
    data = load_data("office_caltech10", data_dir=images, cache_dir=cache, image_size=4, split=str(tmp_path))
    assert data.splits is not None
    assert data.splits.train.all()
