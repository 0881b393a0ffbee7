"""Data sets as they are released, on small trees with the real names."""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from fdgjax.config import make_config
from fdgjax.data.sources.loading import FROM_FILES
from fdgjax.utils.errors import UserError

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
        source = FROM_FILES["office_caltech10"](str(data_dir))
        assert source.domain_names == OFFICE
        assert source.class_names == tuple(OFFICE_CLASSES)
        assert source.samples == 40
        for example in source.examples():
            path = Path(example.file)
            assert path.parent.parent.name.lower() == OFFICE[example.domain]
            assert path.parent.name.replace("backpack", "back_pack") == OFFICE_CLASSES[example.label]


def test_two_spellings_of_one_folder_are_an_error(tmp_path: Path) -> None:
    make(fedbn(tmp_path), ("dslr",), ["backpack"])
    with pytest.raises(UserError, match=r"folders back_pack and backpack in .*dslr are both 'back_pack'; expected one"):
        FROM_FILES["office_caltech10"](str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["domainnet", "DomainNet", "domain_net", "anything"])
def test_ten_classes_are_found_in_all_of_domainnet(name: str, tmp_path: Path) -> None:
    root = make(tmp_path / name, SIX, MANY)
    ten, all_of_it = (FROM_FILES[entry](str(root)) for entry in ("domainnet10", "domainnet"))
    assert (ten.domain_names, ten.class_names, ten.samples) == (SIX, tuple(TEN), 60)
    assert (all_of_it.domain_names, all_of_it.class_names, all_of_it.samples) == (SIX, tuple(MANY), 6 * 345)
    assert {Path(example.file).parent.name for example in ten.examples()} == set(TEN)
    if name != "anything":
        assert FROM_FILES["domainnet10"](str(tmp_path)).fingerprint == ten.fingerprint


def test_domainnet10_by_itself_is_enough(tmp_path: Path) -> None:
    make(tmp_path, SIX, TEN)
    assert FROM_FILES["domainnet10"](str(tmp_path)).samples == 60
    with pytest.raises(
        UserError,
        match=r"10 different class folders in the domains of .*: expected 345; .*`fdgjax data domainnet ",
    ):
        FROM_FILES["domainnet"](str(tmp_path))


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def without_images(folder: Path) -> None:
    for image in folder.rglob("*.jpg"):
        image.unlink()


def wrong(root: Path, how: str) -> str:
    """Spoils a layout; returns what the error says."""
    spoilt = {
        "domain": (
            lambda: (root / "quickdraw").rename(root / "quick"),
            "no folder 'quickdraw' in .*: expected clipart",
        ),
        "class": (lambda: (root / "real" / "zebra").rename(root / "real" / "Zebra"), "no class folder zebra in .*real"),
        "empty": (lambda: empty(root / "sketch"), "no class folder bird, "),
        "images": (lambda: without_images(root / "real"), "no images in .*real"),
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
        FROM_FILES["domainnet10"](str(root))
    assert "\n" not in str(error.value)


def test_a_long_list_of_missing_classes_is_cut(tmp_path: Path) -> None:
    root = make(tmp_path, SIX, MANY)
    (root / "real").rename(root / "r")
    make(root, ("real",), TEN)
    with pytest.raises(UserError) as error:
        FROM_FILES["domainnet"](str(root))
    assert re.search(
        r"no class folder class_0, .* and 323 more in .*real: every domain needs all of the 345", str(error.value)
    )


TERRA = ["bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel"]
OBJECTS = [f"Object_{number:02d}" for number in range(65)]
DOMAINBED: Mapping[str, tuple[str, tuple[str, ...], list[str]]] = {
    "vlcs": ("VLCS", ("Caltech101", "LabelMe", "SUN09", "VOC2007"), ["bird", "car", "chair", "dog", "person"]),
    "office_home": ("office_home", ("Art", "Clipart", "Product", "Real World"), OBJECTS),
    "terra_incognita": ("terra_incognita", ("location_100", "location_38", "location_43", "location_46"), TERRA),
}
"""As DomainBed's download leaves them: folder, domains, classes."""


@pytest.mark.parametrize("name", DOMAINBED)
def test_what_domainbed_downloads_is_found(name: str, tmp_path: Path) -> None:
    folder, domains, classes = DOMAINBED[name]
    root = make(tmp_path / folder, domains, classes)
    (root / "ImageInfo.csv").write_bytes(b"")
    for data_dir in (root, tmp_path):
        source = FROM_FILES[name](str(data_dir))
        assert (source.domain_names, source.class_names) == (domains, tuple(classes))
        assert source.samples == len(domains) * len(classes)
        for example in source.examples():
            path = Path(example.file)
            assert (path.parts[-3], path.parts[-2]) == (domains[example.domain], classes[example.label])


@pytest.mark.parametrize("name", DOMAINBED)
def test_an_absent_data_set_names_the_command_that_fetches_it(name: str, tmp_path: Path) -> None:
    folder, domains, classes = DOMAINBED[name]
    for data_dir, said in (
        ("", "config.data.dir got ''"),
        (str(tmp_path / "gone"), "no folder"),
        (str(tmp_path), domains[0]),
    ):
        with pytest.raises(UserError, match=rf"{said}.* {folder}/<domain>/<class>/.*; `fdgjax data {name} --dir "):
            FROM_FILES[name](data_dir)
    make(tmp_path / folder, domains[1:], classes)
    with pytest.raises(
        UserError,
        match=rf"no folder '{domains[0]}' in .*{folder}: .*; `fdgjax data {name} --dir {tmp_path}`",
    ):
        FROM_FILES[name](str(tmp_path))


@pytest.mark.parametrize("real", ["Real World", "RealWorld", "Real_World"])
@pytest.mark.parametrize("folder", ["office_home", "OfficeHome", "OfficeHomeDataset_10072016"])
def test_office_home_by_its_archives_names(folder: str, real: str, tmp_path: Path) -> None:
    _, domains, classes = DOMAINBED["office_home"]
    root = make(tmp_path / folder, (*domains[:3], real), classes)
    source = FROM_FILES["office_home"](str(tmp_path))
    assert (source.domain_names, source.samples) == (domains, 4 * 65)
    for domain in (*domains[:3], real):
        (root / domain / classes[0] / f"{domain}_1.jpg").unlink()
        (root / domain / classes[0]).rmdir()
    with pytest.raises(UserError, match=r"64 different class folders in the domains of .*: expected 65"):
        FROM_FILES["office_home"](str(tmp_path))


@pytest.mark.parametrize("name", DOMAINBED)
def test_data_sets_of_photographs_come_with_a_network_for_them(name: str) -> None:
    config = make_config("fedavg", name)
    assert (config.data.name, config.data.image_size, config.model.name) == (name, 224, "resnet18_imagenet")
