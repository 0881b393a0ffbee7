"""Images of an archive are written below one folder; an archive that wants anything else is refused whole."""

import io
import json
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fdgjax.data.layouts import LAYOUTS
from fdgjax.data.loading import DATASETS
from fdgjax.errors import UserError
from fdgjax.fetching.assembling import camera_traps, images_of
from fdgjax.fetching.release import Bounds
from fdgjax.fetching.unpacking import Member, members, write

from .archives import image, office, parquet, tarred, zipped

BOUNDS = Bounds(10**6, 500)
ASSEMBLE = images_of(LAYOUTS["office_caltech10"])
GOOD = "amazon/mug/1.jpg"


def unpack(folder: Path, name: str, content: bytes, bounds: Bounds = BOUNDS) -> Path:
    """The folder made of an archive; beside it nothing may appear."""
    (folder / name).write_bytes(content)
    into = folder / "into"
    into.mkdir()
    try:
        ASSEMBLE({name: folder / name}, into, bounds)
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
    assert DATASETS["office_caltech10"](str(into)).samples == 40


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
    "up": (zipped({GOOD: b"x", "../mug/1.jpg": b"x"}), "leads out of its folder, ../mug"),
    "up inside": (zipped({"amazon/mug/../../../x.jpg": b"x"}), "leads out of its folder"),
    "absolute": (zipped({"/amazon/mug/1.jpg": b"x"}), "leads out of its folder, /amazon"),
    "backslash": (zipped({"amazon\\mug\\1.jpg": b"x"}), "leads out of its folder"),
    "drive": (zipped({"C:/amazon/mug/1.jpg": b"x"}), "leads out of its folder, C:"),
    "link": (zipped({GOOD: b"/etc/passwd"}, external_attr=LINK), "a link or a device"),
    "pipe": (zipped({GOOD: b""}, external_attr=stat.S_IFIFO << 16), "a link or a device"),
    "encrypted": (zipped({GOOD: b"x"}).replace(b"\0\0\x08\0", b"\1\0\x08\0"), "an encrypted member"),
    "bomb": (zipped({GOOD: bytes(2 * 10**6)}), "more than 1.0 MB"),
    "bombs": (zipped({f"skipped/{number}": bytes(10**5) for number in range(11)}), "more than 1.0 MB"),
    "many": (zipped({f"{number}": b"" for number in range(501)}), "more than 500 entries"),
    "understated": (understated(zipped({GOOD: image(1)})), "damaged|more of|of 1 bytes"),
    "corrupt": (corrupt(zipped({GOOD: image(1)})), "damaged"),
    "cut": (zipped(office())[:-300], "damaged"),
    "page": (b"<html>sign in</html>", "damaged"),
    "empty": (b"", "damaged"),
    "twice": (zipped({f"a/{GOOD}": b"x", f"b/{GOOD}": b"y"}), "two members for 1.jpg"),
    "nothing": (zipped({"else/dog/1.jpg": b"x"}), "no image of office_caltech_10/<domain>/<class>"),
}
TARS: dict[str, tuple[bytes, str]] = {
    "up": (tarred({"a/../../x": b"x"}), "leads out of its folder"),
    "absolute": (tarred({f"/{GOOD}": b"x"}), "leads out of its folder"),
    "link": (tarred({GOOD: b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a link or a device"),
    "hard link": (tarred({GOOD: b""}, type=tarfile.LNKTYPE, linkname="/etc/passwd"), "a link or a device"),
    "device": (tarred({GOOD: b""}, type=tarfile.BLKTYPE), "a link or a device"),
    "pipe": (tarred({GOOD: b""}, type=tarfile.FIFOTYPE), "a link or a device"),
    "bomb": (tarred({GOOD: bytes(2 * 10**6)}), "more than 1.0 MB"),
    "many": (tarred({f"{number}": b"" for number in range(501)}), "more than 500 entries"),
    "cut": (tarred(office())[:-300], "damaged"),
    "page": (b"<html>sign in</html>", "damaged"),
    "twice": (tarred({f"a/{GOOD}": b"x", f"b/{GOOD}": b"y"}), "two members for 1.jpg"),
}
HOSTILE = {
    f"{kind} {how}": (kind, *it) for kind, those in (("zip", ZIPS), ("tar.gz", TARS)) for how, it in those.items()
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_or_damaged_archive_is_one_line(how: str, tmp_path: Path) -> None:
    suffix, content, said = HOSTILE[how]
    with pytest.raises(UserError, match=rf"a\.{suffix} (has|is) .*({said}).*(remove it|remove a\.{suffix})") as error:
        unpack(tmp_path, f"a.{suffix}", content)
    assert "\n" not in str(error.value)


PACS = images_of(LAYOUTS["pacs"])
NAMES = LAYOUTS["pacs"].classes


def rows(names: bool) -> list[tuple[Any, Any, Any]]:
    """A row for each domain and class."""
    domains = LAYOUTS["pacs"].domains
    return [
        (image(label, "png" if label % 2 else "jpeg"), domain, name if names else label)
        for domain in domains
        for label, name in enumerate(NAMES)
    ]


@pytest.mark.parametrize("labels", ["names", "numbers", "numbers with names"])
def test_parquet_becomes_folders_of_images(labels: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", rows(labels == "names"), NAMES if "with" in labels else ())
    PACS({path.name: path}, tmp_path / "into", BOUNDS)
    source = DATASETS["pacs"](str(tmp_path / "into"))
    assert source.samples == 28
    for example, (content, domain, label) in zip(source.examples(), rows(True), strict=True):
        assert example.image == content
        assert (source.domain_names[example.domain], source.class_names[example.label]) == (domain, label)
        assert Path(example.file).suffix == (".png" if example.label % 2 else ".jpg")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((image(0), "..", "dog"), "leads out of its folder"),
        ((image(0), "a/b", "dog"), "no names of folders"),
        ((image(0), "", "dog"), "no names of folders"),
        ((image(0), "photo", 7), "no name for 7"),
        ((image(0), "photo", -1), "no name for -1"),
        ((b"<html>", "photo", "dog"), "no image in row 0"),
        ((None, "photo", "dog"), "no image in row 0"),
        ((image(0), None, "dog"), "damaged"),
    ],
)
def test_a_hostile_row_is_one_line(row: tuple[Any, Any, Any], said: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [row])
    with pytest.raises(UserError, match=said) as error:
        PACS({path.name: path}, tmp_path / "into", BOUNDS)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "into").exists()


def test_a_parquet_file_that_is_none_or_lacks_a_column_is_one_line(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    path = tmp_path / "a.parquet"
    for content, said in ((b"PAR1 not", "is damaged"), (None, "no column domain, label")):
        write_table(pa.table({"image": [b"x"]}), path)
        if content:
            path.write_bytes(content)
        with pytest.raises(UserError, match=said):
            list(members(path))


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
    camera_traps(TERRA, "notes.tar.gz", "all.tar.gz")(files, tmp_path / "into", BOUNDS)
    source = DATASETS["terra_incognita"](str(tmp_path / "into"))
    assert source.samples == 4 * 10 + 1
    both = [tmp_path / "into" / "location_38" / name / "38-0.jpg" for name in (TERRA.classes[0], TERRA.classes[4])]
    assert both[0].read_bytes() == both[1].read_bytes() == image(names.index("38-0.jpg"))


@pytest.mark.parametrize(("content", "said"), [(b"no", "no JSON in"), (b"[]", "lacks"), (b"{}", "lacks 'categories'")])
def test_annotations_that_are_none_are_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "notes.tar.gz").write_bytes(tarred({"train.json": content}))
    with pytest.raises(UserError, match=said):
        camera_traps(TERRA, "notes.tar.gz", "all.tar.gz")({"notes.tar.gz": tmp_path / "notes.tar.gz"}, tmp_path, BOUNDS)


def test_no_more_is_written_of_a_member_than_it_says(tmp_path: Path) -> None:
    endless = Member("endless.jpg", 3, lambda: iter([b"xx"] * 9))
    with pytest.raises(UserError, match=r"more of endless\.jpg than it says"):
        write(tmp_path / "a.zip", endless, tmp_path / "endless.jpg")
    assert (tmp_path / "endless.jpg").stat().st_size == 2


def test_a_directory_entry_is_no_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.mkdir("amazon/mug")
        archive.writestr(GOOD, image(3))
    assert (unpack(tmp_path, "a.zip", buffer.getvalue()) / GOOD).read_bytes() == image(3)
