"""Images of an archive are written below one folder; an archive that wants anything else is refused whole."""

import gzip
import io
import json
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fdgjax.data.download.archives import camera_traps, images_of, parquet_images
from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.loading import FROM_FILES
from fdgjax.utils.errors import UserError
from tests.data.download.archives import image, office, parquet, tarred, zipped

MOST = 10**6
ASSEMBLE = images_of(LAYOUTS["office_caltech10"])
GOOD = "amazon/mug/1.jpg"


def unpack(folder: Path, name: str, content: bytes) -> Path:
    """The folder made of an archive; beside it nothing may appear."""
    (folder / name).write_bytes(content)
    into = folder / "into"
    into.mkdir()
    try:
        ASSEMBLE({name: folder / name}, into, MOST)
    finally:
        assert sorted(path.name for path in folder.iterdir()) == sorted([name, "into"])
        assert not [path for path in into.rglob("*") if path.is_symlink()]
    return into


@pytest.mark.parametrize(("name", "make"), [("a.zip", zipped), ("a.tar.gz", tarred)])
@pytest.mark.parametrize("prefix", ["", "Office_Caltech_DA_Dataset-main/", "some/where/"])
def test_images_are_found_wherever_they_are(
    prefix: str, name: str, make: Callable[[Mapping[str, bytes]], bytes], tmp_path: Path
) -> None:
    into = unpack(tmp_path, name, make(office(prefix)))
    wanted = {key.removeprefix(prefix): value for key, value in office(prefix).items() if key.endswith("0.jpg")}
    written = {path.relative_to(into).as_posix(): path.read_bytes() for path in into.rglob("*") if path.is_file()}
    assert len(written) == 40
    assert wanted.items() <= written.items()
    assert FROM_FILES["office_caltech10"](str(into)).samples == 40


def corrupt(content: bytes) -> bytes:
    """Another byte in the first member's content."""
    at = content.index(GOOD.encode()) + len(GOOD) + 20
    return content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]


def understated(content: bytes) -> bytes:
    """A zip that says that its member has one byte."""
    entry = content.rindex(b"PK\1\2")
    return content[: entry + 24] + b"\1\0\0\0" + content[entry + 28 :]


LINK = (stat.S_IFLNK | 0o777) << 16
ZIPS: dict[str, tuple[bytes, str]] = {
    "up": (zipped({GOOD: b"x", "../mug/1.jpg": b"x"}), "../mug/1.jpg leads out of its folder"),
    "up inside": (zipped({"amazon/mug/../../../x.jpg": b"x"}), "leads out of its folder"),
    "absolute": (zipped({"/amazon/mug/1.jpg": b"x"}), "/amazon/mug/1.jpg leads out of its folder"),
    "backslash": (zipped({"amazon\\mug\\1.jpg": b"x"}), "no image of"),
    "link": (zipped({GOOD: b"/etc/passwd"}, external_attr=LINK), "is a link"),
    "encrypted": (zipped({GOOD: b"x"}).replace(b"\0\0\x08\0", b"\1\0\x08\0"), "is encrypted"),
    "bomb": (zipped({GOOD: bytes(2 * 10**6)}), "more than 1.0 MB"),
    "bombs": (zipped({f"skipped/{number}": bytes(10**5) for number in range(11)}), "more than 1.0 MB"),
    "understated": (understated(zipped({GOOD: image(1)})), "Bad CRC"),
    "corrupt": (corrupt(zipped({GOOD: image(1)})), "decompressing data"),
    "cut": (zipped(office())[:-300], "not a zip file"),
    "page": (b"<html>sign in</html>", "not a zip file"),
    "empty": (b"", "not a zip file"),
    "twice": (zipped({f"a/{GOOD}": b"x", f"b/{GOOD}": b"y"}), "two members for amazon/mug/1.jpg"),
    "nothing": (zipped({"else/dog/1.jpg": b"x"}), "no image of office_caltech_10/<domain>/<class>"),
}
TARS: dict[str, tuple[bytes, str]] = {
    "up": (tarred({"a/../../x": b"x"}), "outside the destination"),
    "up inside": (tarred({"a/../x": b"x"}), "leads out of its folder"),
    "absolute": (tarred({f"/{GOOD}": b"x"}), "leads out of its folder"),
    "link": (tarred({GOOD: b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link to an absolute path"),
    "link up": (tarred({GOOD: b""}, type=tarfile.SYMTYPE, linkname="../../../a"), "outside the destination"),
    "hard link": (tarred({GOOD: b""}, type=tarfile.LNKTYPE, linkname="/etc/passwd"), "is a link to an absolute path"),
    "device": (tarred({GOOD: b""}, type=tarfile.BLKTYPE), "is a special file"),
    "pipe": (tarred({GOOD: b""}, type=tarfile.FIFOTYPE), "is a special file"),
    "bomb": (tarred({GOOD: bytes(2 * 10**6)}), "more than 1.0 MB"),
    "cut": (tarred(office())[:-300], "ended before the end"),
    "corrupt": (gzip.compress(gzip.decompress(tarred({GOOD: image(1)}))[:1024])[:-8] + bytes(8), "CRC check failed"),
    "page": (b"<html>sign in</html>", "could not be opened"),
    "twice": (tarred({f"a/{GOOD}": b"x", f"b/{GOOD}": b"y"}), "two members for amazon/mug/1.jpg"),
}
HOSTILE = {
    f"{kind} {how}": (kind, *it) for kind, those in (("zip", ZIPS), ("tar.gz", TARS)) for how, it in those.items()
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_or_damaged_archive_is_one_line(how: str, tmp_path: Path) -> None:
    suffix, content, said = HOSTILE[how]
    with pytest.raises(UserError, match=rf"a\.{suffix} is damaged or .*{said}.*remove it") as error:
        unpack(tmp_path, f"a.{suffix}", content)
    assert "\n" not in str(error.value)


PACS = parquet_images(LAYOUTS["pacs"])
NAMES = LAYOUTS["pacs"].classes


def test_parquet_becomes_folders_of_images(tmp_path: Path) -> None:
    domains = LAYOUTS["pacs"].domains
    rows = [
        (image(label, "png" if label % 2 else "jpeg"), domain, label)
        for domain in domains
        for label in range(len(NAMES))
    ]
    path = parquet(tmp_path / "a.parquet", rows)
    PACS({path.name: path}, tmp_path / "into", MOST)
    source = FROM_FILES["pacs"](str(tmp_path / "into"))
    assert source.samples == 28
    for example, (content, domain, label) in zip(source.examples(), rows, strict=True):
        assert example.image == content
        assert (source.domain_names[example.domain], example.label) == (domain, label)
        assert Path(example.file).suffix == (".png" if example.label % 2 else ".jpg")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((image(0), "photo", 7), "damaged"),
        ((None, "photo", 0), "damaged"),
        ((image(0), None, 0), "damaged"),
    ],
)
def test_a_hostile_row_is_one_line(row: tuple[Any, Any, Any], said: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [row])
    with pytest.raises(UserError, match=said) as error:
        PACS({path.name: path}, tmp_path / "into", MOST)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "into").exists()


def test_a_parquet_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(UserError, match="damaged"):
        PACS({"a.parquet": tmp_path / "a.parquet"}, tmp_path / "into", MOST)


TERRA = LAYOUTS["terra_incognita"]


def annotations(**changes: object) -> bytes:
    """COCO's format: the first image shows two kinds, the last is elsewhere or of another kind."""
    found: dict[str, Any] = {
        "categories": [{"id": number, "name": name} for number, name in enumerate((*TERRA.classes, "car"))],
        "images": [
            {"id": f"{place}-{kind}", "file_name": f"{place}-{kind}.jpg", "location": place}
            for place in (100, 38, 43, "46", 7)
            for kind in range(11)
        ],
    }
    found["annotations"] = [
        {"image_id": it["id"], "category_id": int(it["id"].partition("-")[2])} for it in found["images"]
    ]
    found["annotations"] += [{"image_id": "38-0", "category_id": 4}, {"image_id": "38-0", "category_id": 0}]
    return json.dumps(found | changes).encode()


def test_camera_traps_are_sorted_by_their_annotations(tmp_path: Path) -> None:
    names = [it["file_name"] for it in json.loads(annotations())["images"]]
    (tmp_path / "notes.tar.gz").write_bytes(tarred({"e/train.json": annotations(), "e/._train.json": b"\0"}))
    (tmp_path / "all.tar.gz").write_bytes(tarred({f"all/{name}": image(n) for n, name in enumerate(names)}))
    files = {path.name: path for path in tmp_path.iterdir()}
    camera_traps(TERRA, "notes.tar.gz", "all.tar.gz")(files, tmp_path / "into", MOST)
    source = FROM_FILES["terra_incognita"](str(tmp_path / "into"))
    assert source.samples == 4 * 10 + 1
    both = [tmp_path / "into" / "location_38" / name / "38-0.jpg" for name in (TERRA.classes[0], TERRA.classes[4])]
    assert both[0].read_bytes() == both[1].read_bytes() == image(names.index("38-0.jpg"))


@pytest.mark.parametrize("content", [b"no", b"[]", b"{}", b'{"categories": [], "images": [1]}'])
def test_annotations_that_are_none_are_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.tar.gz").write_bytes(tarred({"train.json": content}))
    with pytest.raises(UserError, match=r"notes\.tar\.gz is damaged or not the release's \(."):
        camera_traps(TERRA, "notes.tar.gz", "all.tar.gz")({"notes.tar.gz": tmp_path / "notes.tar.gz"}, tmp_path, MOST)


def test_a_directory_entry_is_no_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.mkdir("amazon/mug")
        archive.writestr(GOOD, image(3))
    assert (unpack(tmp_path, "a.zip", buffer.getvalue()) / GOOD).read_bytes() == image(3)
