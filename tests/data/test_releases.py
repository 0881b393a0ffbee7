"""Data sets as they are released, on small trees with the real names."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fdgjax.data import DATASETS
from fdgjax.errors import UserError

OFFICE = ("amazon", "caltech", "dslr", "webcam")
OFFICE_CLASSES = [
    "back_pack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop_computer",
    "monitor",
    "mouse",
    "mug",
    "projector",
]
SIX = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
TEN = ["bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass", "zebra"]
MANY = sorted({*TEN, *(f"class_{number}" for number in range(335))})


def make(root: Path, domains: Iterable[str], classes: Iterable[str]) -> Path:
    """A file in each class folder; nothing is decoded here."""
    for domain in domains:
        for name in classes:
            folder = root / domain / name
            folder.mkdir(parents=True)
            (folder / f"{domain}_1.jpg").write_bytes(b"")
    return root


def fedbn(parent: Path) -> Path:
    root = make(parent / "office_caltech_10", OFFICE, OFFICE_CLASSES)
    (root / "amazon_train.pkl").write_bytes(b"")
    return root


def flgo(parent: Path) -> Path:
    domains = ("Caltech", "amazon", "dslr", "webcam")
    return make(parent / "Office_Caltech_DA_Dataset-main", domains, ["backpack", *OFFICE_CLASSES[1:]])


def with_office_31(parent: Path) -> Path:
    root = fedbn(parent)
    return make(root, ("amazon", "dslr"), ["bookcase", "trash_can"]) and root


@pytest.mark.parametrize("release", [fedbn, flgo, with_office_31])
def test_office_caltech_has_ten_classes_in_each_release(release: Callable[[Path], Path], tmp_path: Path) -> None:
    root = release(tmp_path)
    for data_dir in (root, tmp_path):
        source = DATASETS["office_caltech10"](str(data_dir))
        assert source.domain_names == OFFICE
        assert source.class_names == tuple(OFFICE_CLASSES)
        assert source.samples == 40
        for example in source.examples():
            path = Path(example.file)
            assert path.parent.parent.name.lower() == OFFICE[example.domain]
            assert path.parent.name.replace("backpack", "back_pack") == OFFICE_CLASSES[example.label]


def test_two_spellings_of_one_folder_are_an_error(tmp_path: Path) -> None:
    make(fedbn(tmp_path), ("dslr",), ["backpack"])
    with pytest.raises(UserError, match=r"folders back_pack and backpack in .*dslr are both 'back_pack': keep one"):
        DATASETS["office_caltech10"](str(tmp_path))


@pytest.mark.parametrize("name", ["domainnet", "DomainNet", "domain_net", "anything"])
def test_ten_classes_are_found_in_all_of_domainnet(name: str, tmp_path: Path) -> None:
    root = make(tmp_path / name, SIX, MANY)
    ten, all_of_it = (DATASETS[entry](str(root)) for entry in ("domainnet10", "domainnet"))
    assert (ten.domain_names, ten.class_names, ten.samples) == (SIX, tuple(TEN), 60)
    assert (all_of_it.domain_names, all_of_it.class_names, all_of_it.samples) == (SIX, tuple(MANY), 6 * 345)
    assert {Path(example.file).parent.name for example in ten.examples()} == set(TEN)
    if name != "anything":
        assert DATASETS["domainnet10"](str(tmp_path)).fingerprint == ten.fingerprint


def test_domainnet10_by_itself_is_enough(tmp_path: Path) -> None:
    make(tmp_path, SIX, TEN)
    assert DATASETS["domainnet10"](str(tmp_path)).samples == 60
    with pytest.raises(UserError, match=r"10 different class folders in the domains of .*: expected 345; .*M3SDA"):
        DATASETS["domainnet"](str(tmp_path))


def wrong(root: Path, how: str) -> str:
    """Spoils a layout; returns what the error says."""
    spoilt = {
        "domain": (
            lambda: (root / "quickdraw").rename(root / "quick"),
            "no folder 'quickdraw' in .*: expected clipart",
        ),
        "class": (lambda: (root / "real" / "zebra").rename(root / "real" / "Zebra"), "no class folder zebra in .*real"),
        "empty": (lambda: (root / "sketch").rename(root / "s") and (root / "sketch").mkdir(), "no class folder bird, "),
        "images": (lambda: [p.unlink() for p in (root / "real").rglob("*.jpg")], "no images in .*real"),
        "upside down": (lambda: root.rename(root.with_name("d")) and make(root, TEN, SIX), "no folder clipart, info"),
    }
    spoil, said = spoilt[how]
    spoil()
    return said


@pytest.mark.parametrize("how", ["domain", "class", "empty", "images", "upside down"])
def test_a_wrong_layout_is_named_in_one_line(how: str, tmp_path: Path) -> None:
    root = make(tmp_path / "data", SIX, TEN)
    said = wrong(root, how)
    with pytest.raises(UserError, match=said) as error:
        DATASETS["domainnet10"](str(root))
    assert "\n" not in str(error.value)


def test_a_long_list_of_missing_classes_is_cut(tmp_path: Path) -> None:
    root = make(tmp_path, SIX, MANY)
    (root / "real").rename(root / "r")
    make(root, ("real",), TEN)
    with pytest.raises(UserError) as error:
        DATASETS["domainnet"](str(root))
    assert re.search(
        r"no class folder class_0, .* and 323 more in .*real: every domain needs all of the 345", str(error.value)
    )
