"""Folders of images as no release has them: each is an error or a warning of one line that names the culprit."""

import io
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from fdgjax.data.sources import listing
from fdgjax.data.sources.decoding import decode_image
from fdgjax.data.sources.folders import folder_data
from fdgjax.data.sources.layouts import FolderLayout
from fdgjax.data.sources.loading import load_data
from fdgjax.utils.errors import UserError, printable
from tests.data.trees import CLASSES, DOMAINS

Spoil = Callable[[Path], object]
FIRST = f"{DOMAINS[0]}/{CLASSES[0]}"


def said_of(tree: Path, cache: Path) -> str:
    """The error, which is one printable line."""
    with pytest.raises(UserError) as caught:
        load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    assert str(caught.value).isprintable()
    assert not cache.exists() or list(cache.iterdir()) == []
    return str(caught.value)


def move_down(tree: Path) -> None:
    """All images one level deeper."""
    for file in [path for path in tree.rglob("*") if path.is_file()]:
        (file.parent / "2021").mkdir(exist_ok=True)
        file.rename(file.parent / "2021" / file.name)


def move_up(tree: Path) -> None:
    """All images one level higher."""
    for file in [path for path in tree.rglob("*") if path.is_file()]:
        file.rename(file.parent.parent / f"{file.parent.name}{file.name}")


def drop_classes(tree: Path, *names: str) -> None:
    for domain in DOMAINS:
        for name in names:
            shutil.rmtree(tree / domain / name)


def empty_classes(tree: Path, *names: str) -> None:
    drop_classes(tree, *names)
    for domain in DOMAINS:
        for name in names:
            (tree / domain / name).mkdir()


def rename_class(tree: Path, name: str | bytes) -> None:
    for domain in DOMAINS:
        os.rename(tree / domain / CLASSES[0], os.path.join(tree, domain, os.fsdecode(name)))


ERRORS: dict[str, tuple[Spoil, str]] = {
    "a link to itself": (lambda t: (t / "loop").symlink_to(t / "loop"), "loop is a link that leads nowhere, or back"),
    "a domain that is all": (lambda t: (t / "all").symlink_to(t), "all is a link that leads nowhere, or back to"),
    "a class that is its domain": (lambda t: (t / DOMAINS[0] / "x").symlink_to(".."), "x is a link that leads nowhere"),
    "a folder in circles": (lambda t: (t / FIRST / "up").symlink_to("../.."), "up is a link that leads nowhere"),
    "an image that is nowhere": (lambda t: (t / FIRST / "9.png").symlink_to("gone"), "9.png is a link that leads now"),
    "an image that is no image": (lambda t: (t / FIRST / "0.png").write_text("hello"), "0.png (neither JPEG, PNG"),
    "an image of zero bytes": (lambda t: (t / FIRST / "0.png").write_bytes(b""), "0.png (neither JPEG, PNG"),
    "a truncated image": (
        lambda t: (t / FIRST / "1.JPG").write_bytes((t / FIRST / "1.JPG").read_bytes()[:-60]),
        "1.JPG (Truncated File Read",
    ),
    "a damaged file of a hostile name": (lambda t: (t / FIRST / "a\nb\x1b[2J.png").write_text(""), r"a\nb\x1b[2J.png"),
    "a damaged file, not UTF-8": (
        lambda t: Path(os.fsdecode(bytes(t / FIRST) + b"/\xe9.png")).write_text(""),
        r"\xe9.png",
    ),
    "a class that is not UTF-8": (lambda t: rename_class(t, b"caf\xe9"), r"caf\xe9 has control characters in its name"),
    "a class with a line break": (lambda t: rename_class(t, "c\nd"), r"c\nd has control characters in its name"),
    "a domain with an escape": (lambda t: (t / DOMAINS[0]).rename(t / "a\x1b[1mb"), r"a\x1b[1mb has control"),
    "one class": (lambda t: drop_classes(t, *CLASSES[1:]), "one class alone, cat, has images"),
    "one class with images": (lambda t: empty_classes(t, *CLASSES[1:]), "one class alone, cat, has images"),
    "no images": (lambda t: empty_classes(t, *CLASSES), f"no images in {{}}/{DOMAINS[0]}: expected <class>/*.jpg"),
    "too deep": (move_down, f"one level too deep, such as {{}}/{FIRST}/2021/"),
    "too high": (move_up, f"one level too high, such as {{}}/{DOMAINS[0]}/cat"),
    "one domain too deep": (
        lambda t: move_down((t / DOMAINS[0]).rename(t / "x")),
        "no images in {}/x: expected <class>/*.jpg, *.jpeg",
    ),
}


@pytest.mark.parametrize("how", ERRORS)
def test_an_error_names_the_culprit(how: str, tree: Path, cache: Path) -> None:
    spoil, wanted = ERRORS[how]
    spoil(tree)
    assert wanted.format(tree) in said_of(tree, cache)


def test_a_level_too_deep_is_told_by_the_folder_to_name(tree: Path, cache: Path) -> None:
    said = said_of(tree.parent, cache)
    assert f"set data_dir (config.data.dir) to {tree}" in said
    assert folder_data(FolderLayout())(said.split("to ")[-1].strip()).samples == 12


def test_folders_and_files_that_cannot_be_read(tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = PermissionError(13, "Permission denied")
    scan, read = os.scandir, Path.read_bytes

    def refuse(what: Callable, name: str) -> Callable:
        def refusing(path: Path, *args: object) -> object:
            if Path(path).name == name:
                raise refused
            return what(path, *args)

        return refusing

    with monkeypatch.context() as patch:
        patch.setattr(listing.os, "scandir", refuse(scan, CLASSES[1]))
        wanted = f"cannot read the folder {tree}/{DOMAINS[0]}/{CLASSES[1]} (Permission denied)"
        assert wanted in said_of(tree, cache)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse(read, "1.JPG"))
        assert f"cannot read {tree}/{FIRST}/1.JPG: Permission denied" in said_of(tree, cache)


def test_names_that_are_too_long_for_the_disk(tree: Path, cache: Path) -> None:
    said = said_of(tree / ("x" * 300), cache)
    assert "File name too long" in said
    longest = "n" * 251 + ".png"
    shutil.copy(tree / FIRST / "0.png", tree / FIRST / longest)
    rename_class(tree, "c" * 255)
    data = load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    assert (len(data.labels), data.class_names[0]) == (13, "c" * 255)


def test_image_files_of_any_name_are_read(tree: Path, cache: Path) -> None:
    for name in (b"a\nb.png", b"\xe9.png", b"tab\t.png", "\u202egnp.png".encode()):
        shutil.copy(tree / FIRST / "0.png", tree / FIRST / os.fsdecode(name))
    assert len(load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache)).labels) == 16


def test_a_data_folder_of_any_name_is_read(tree: Path, cache: Path) -> None:
    moved = os.fsdecode(os.fsencode(tree) + b"\xe9\n")
    tree.rename(moved)
    assert len(load_data("folder", data_dir=moved, image_size=4, cache_dir=str(cache)).labels) == 12


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.name == "fdgjax"]
    assert all(line.isprintable() for line in lines)
    return lines


def test_what_is_skipped_is_counted_in_one_line(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fdgjax")
    (tree / "__MACOSX" / CLASSES[0]).mkdir(parents=True)
    (tree / FIRST / "._0.png").write_text("")
    (tree / FIRST / ".DS_Store").write_text("")
    (tree / FIRST / "a\nb.txt").write_text("")
    (tree / "README").write_text("")
    assert folder_data(FolderLayout())(str(tree)).samples == 12
    (line,) = lines_of(caplog)
    assert line == (
        f"skipped in {tree}: files that are not images (no suffix 1, .txt 1): 2 (README and 1 more); "
        "hidden or system files: 3 (__MACOSX and 2 more)"
    )
    assert caplog.records[-1].levelno == logging.INFO
    caplog.clear()
    (tree / FIRST / "more").mkdir()
    shutil.copy(tree / FIRST / "0.png", tree / DOMAINS[1] / "lost.png")
    assert folder_data(FolderLayout())(str(tree)).samples == 12
    (line,) = lines_of(caplog)
    assert "images outside class folders: 1 (sketch-2/lost.png); folders inside class folders: 1 (" in line
    assert caplog.records[-1].levelno == logging.WARNING


def test_images_of_formats_that_are_not_read_are_counted_by_suffix(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fdgjax")
    for name in ("IMG_1.HEIC", "IMG_2.heic", "raw.dng", "notes.txt"):
        (tree / FIRST / name).write_text("")
    assert folder_data(FolderLayout())(str(tree)).samples == 12
    assert lines_of(caplog) == [
        f"skipped in {tree}: images to be converted to JPEG or PNG (.heic 2, .dng 1): 3 ({FIRST}/IMG_1.HEIC and 2 "
        f"more); files that are not images (.txt 1): 1 ({FIRST}/notes.txt)"
    ]
    assert caplog.records[-1].levelno == logging.WARNING
    for image in list((tree / DOMAINS[1]).glob("*/*")):
        image.rename(image.with_suffix(".HEIC"))
    with pytest.raises(UserError, match=r"no images in .*sketch-2.*; other files there: \.heic 6"):
        folder_data(FolderLayout())(str(tree))


def test_classes_that_differ_in_spelling_are_said_to(tree: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    for domain, name in zip(DOMAINS, (composed, apart, apart), strict=False):
        (tree / domain / CLASSES[0]).rename(tree / domain / name)
    with pytest.raises(
        UserError, match=r"no class folder .*, but .*, which differs in capitals or the form of accents"
    ):
        folder_data(FolderLayout())(str(tree))


def test_classes_that_differ_in_case_are_said_to(tree: Path) -> None:
    (tree / DOMAINS[1] / CLASSES[1]).rename(tree / DOMAINS[1] / CLASSES[1].title())
    with pytest.raises(
        UserError, match=r"no class folder Dog in .*, but dog, which differs in capitals or.*rename one"
    ):
        folder_data(FolderLayout())(str(tree))


def test_folders_of_other_classes_are_counted(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fdgjax")
    find = folder_data(FolderLayout(domains=DOMAINS[:1], classes=CLASSES[:2], only=True))
    assert find(str(tree)).samples == 4
    assert lines_of(caplog) == [f"skipped in {tree}: folders of other names: 2 (sketch-2 and 1 more)"]


def test_classes_empty_everywhere_are_named(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    empty_classes(tree, CLASSES[1])
    source = folder_data(FolderLayout())(str(tree))
    assert (source.samples, source.class_names) == (8, CLASSES)
    (line,) = lines_of(caplog)
    assert line.startswith(f"no images of {CLASSES[1]} in any domain of {tree}")


def test_identical_images_are_counted(tree: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(tree / FIRST / "0.png", tree / FIRST / "again\n.png")
    shutil.copy(tree / FIRST / "0.png", tree / DOMAINS[1] / CLASSES[1] / "2.png")
    shutil.copy(tree / FIRST / "1.JPG", tree / DOMAINS[1] / CLASSES[0] / "3.png")
    assert len(load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache)).labels) == 15
    (line,) = lines_of(caplog)
    here, there = tree / FIRST, tree / DOMAINS[1]
    assert line == (
        f"identical images in {tree}: 1 within a domain ({here}/again\\n.png is {here}/0.png), "
        f"2 in two domains ({there}/cat/3.png is {here}/1.JPG and 1 more), "
        f"1 in two classes ({there}/dog/2.png is {here}/0.png)"
    )


@pytest.mark.parametrize("form", ["webp", "bmp", "tiff", "gif", "png", "jpeg"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_format_is_read_by_its_first_frame(form: str, mode: str, tree: Path, cache: Path) -> None:
    levels = (40, 120, 200) if mode == "RGB" else (120,)
    frames = [Image.new(mode, (6, 5), tuple(levels) if len(levels) > 1 else levels[0]), Image.new(mode, (6, 5), 0)]
    path = tree / FIRST / f"image.{form.upper()}"
    several = {} if form in ("bmp", "jpeg") else {"save_all": True, "append_images": frames[1:]}
    lossless = {"lossless": True} if form == "webp" else {}
    frames[0].save(path, form, **several, **lossless)
    data = load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    row = sorted(["0.png", "1.JPG", path.name]).index(path.name)
    assert len(data.labels) == 13
    wanted = np.broadcast_to(levels if len(levels) > 1 else levels * 3, (4, 4, 3))
    np.testing.assert_allclose(data.inputs[row], wanted, atol=3)


def header_of(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [9_460, 12_000, 14_000, 100_000])
@pytest.mark.filterwarnings("error")
def test_a_picture_too_large_is_an_error_of_one_line(side: int, tree: Path, cache: Path) -> None:
    (tree / FIRST / "0.png").write_bytes(header_of(side, side))
    said = said_of(tree, cache)
    assert f"cannot decode the image {tree}/{FIRST}/0.png (" in said
    assert "pixels" in said
    assert "89,478,485" in said or "178956970" in said


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_460, 12_000, 14_000])
def test_a_picture_too_large_is_refused_before_it_is_decoded(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(image: Image.Image) -> None:
        raise AssertionError(f"{image} is decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", decoded)
    with pytest.raises(Exception, match="pixels"):
        decode_image(header_of(side, side), 4, 3)


def test_a_pipe_is_not_opened(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fdgjax")
    os.mkfifo(tree / FIRST / "pipe.png")
    assert folder_data(FolderLayout())(str(tree)).samples == 12
    assert lines_of(caplog) == [f"skipped in {tree}: files that are not images (.png 1): 1 ({FIRST}/pipe.png)"]


@pytest.mark.parametrize("place", [8, 9])
@pytest.mark.filterwarnings("error")
def test_pillow_says_nothing_of_its_own(
    place: int, tree: Path, cache: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tree / FIRST / "image.tif"
    Image.new("RGB", (4, 4)).save(path)
    content = path.read_bytes()
    entry = content.index(struct.pack("<HH", 277, 3))  # samples per pixel: tag, type, count, value
    path.write_bytes(content[: entry + place] + b"\x40\x08" + content[entry + place + 2 :])
    said_of(tree, cache)
    assert not [record for record in caplog.records if record.name.startswith("PIL")]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("mode", ["F", "I"])
def test_grey_of_32_bits_is_refused(mode: str) -> None:
    file = io.BytesIO()
    Image.new(mode, (4, 4), 100_000).save(file, "tiff")
    with pytest.raises(ValueError, match="grey of 32 bits"):
        decode_image(file.getvalue(), 4, 3)


def test_printable_is_one_line_and_changes_no_word() -> None:
    assert printable("naïve 漢字 a_b") == "naïve 漢字 a_b"
    hostile = "a\nb\t\x00\x1b\u202e\u2028\udcff\ud800"
    assert printable(hostile) == r"a\nb\t\x00\x1b\u202e\u2028\xff\ud800"
    assert printable(printable(hostile)) == printable(hostile)
    assert str(UserError(hostile)) == printable(hostile)
