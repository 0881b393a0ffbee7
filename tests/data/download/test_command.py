"""`fdgjax data`: licence and size first; a whole, verified data set or nothing; again, it repairs or verifies."""

import hashlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fdgjax.cli.subcommands import main as fdgjax
from fdgjax.data.download.archives import as_they_are, images_of
from fdgjax.data.download.install import check_release_space
from fdgjax.data.download.release import File, Release
from fdgjax.data.download.releases import RELEASES
from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.loading import FROM_FILES
from fdgjax.utils.checksums import sha256, tree_sha256
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import lock
from tests.data.download.archives import image, office, tarred, zipped
from tests.data.download.server import Served, changes, drops, says

ARCHIVE = zipped(office())
SHA256 = f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}"
RELEASE = Release(
    data_set="office_caltech10",
    folder="office_caltech_10",
    licence="for tests",
    files=(File("office.zip", len(ARCHIVE), ("http://127.0.0.1:9/office.zip",), SHA256),),
    unpacked=20_000,
    images=40,
    assemble=images_of(LAYOUTS["office_caltech10"]),
)
UNKNOWN = RELEASE._replace(files=(RELEASE.files[0]._replace(checksum=""),))


class Said(NamedTuple):
    """What a command printed, and its status."""

    status: int
    out: str
    error: str


Data = Callable[..., Said]


@pytest.fixture
def data(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Data:
    """`fdgjax data` of a release that lies on the server, into `tmp_path / "data"`."""
    server.files["office.zip"] = ARCHIVE

    def call(*arguments: str, release: Release = RELEASE, yes: bool = True) -> Said:
        monkeypatch.setattr("fdgjax.cli.data.RELEASES", {"office": release})
        given = ["office", "--dir", str(tmp_path / "data"), "--mirror", server.url, *arguments]
        status = fdgjax(["fdgjax", "data", *given, *(["--yes"] if yes else [])])
        return Said(status, *capsys.readouterr())

    return call


def test_a_data_set_is_fetched_verified_and_not_fetched_twice(data: Data, server: Served, tmp_path: Path) -> None:
    first = data()
    assert (first.status, first.error) == (0, "")
    assert "is fetched and verified: 40 images in 4 domains" in first.out
    assert f"--config.data.dir={tmp_path / 'data'}" in first.out
    assert FROM_FILES["office_caltech10"](str(tmp_path / "data")).samples == 40
    downloads = tmp_path / "data" / "downloads" / "office"
    assert sorted(path.name for path in downloads.iterdir()) == ["fetched.txt", "lock"]
    assert (downloads / "fetched.txt").read_text() == f"office.zip {SHA256[7:]}\n"
    server.asked.clear()
    again = data(yes=False)
    assert again.status == 0
    assert "is there: 40 images in 4 domains, every byte as it was when it was fetched" in again.out
    assert not server.asked


def test_no_file_is_hashed_more_than_once(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """The download verified the archive, and `checksums.txt` ends with the checksum of all images."""
    hashed = list[str]()

    def noted(path: Path) -> str:
        hashed.append(str(path))
        return sha256(path)

    for module in ("fdgjax.data.download.install", "fdgjax.utils.checksums"):
        monkeypatch.setattr(f"{module}.sha256", noted)
    assert data().status == 0
    assert len(hashed) == len(set(hashed)) == 40


def test_licence_and_size_come_first(data: Data) -> None:
    said = data().out.splitlines()
    assert said[1].split() == ["licence", "for", "tests"]
    assert said[2].startswith("  size     ")
    assert said.index("  licence  for tests") < next(i for i, line in enumerate(said) if line.startswith("fetching"))


def flipped(content: bytes) -> bytes:
    return content[:99] + bytes([content[99] ^ 1]) + content[100:]


@pytest.mark.parametrize("release", [RELEASE, UNKNOWN], ids=["known", "unknown"])
def test_a_server_that_fails_in_every_way_is_overcome(
    release: Release, data: Data, server: Served, tmp_path: Path
) -> None:
    faults = [says(503), drops(500), says(302, Location="file:///etc/hostname")]
    server.faults["office.zip"] = [changes(flipped), *faults[1:]] if release is RELEASE else faults
    assert data(release=release).status == 0
    assert tree_sha256(tmp_path / "data" / "office_caltech_10") == TREE


def test_a_command_that_failed_gets_there_when_it_is_repeated(data: Data, server: Served, tmp_path: Path) -> None:
    two = RELEASE._replace(files=(RELEASE.files[0]._replace(name="first.zip"), RELEASE.files[0]))
    two = two._replace(assemble=lambda files, into, most: RELEASE.assemble({"one": files["office.zip"]}, into, most))
    server.files["first.zip"] = ARCHIVE
    server.faults["office.zip"] = [drops(500)] * 99
    failed = data(release=two)
    assert (failed.status, failed.error.count("\n")) == (2, 1)
    assert failed.error.startswith("fdgjax: cannot fetch office.zip (http://127.0.0.1")
    left = tmp_path / "data" / "downloads" / "office"
    assert sorted(path.name for path in left.iterdir()) == ["first.zip", "lock"]
    half = left / "unfinished" / "office_caltech_10" / "amazon" / "mug" / "frame_0008.jpg"  # of a killed process
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    (left / "unfinished" / "office.zip").write_bytes(b"half")
    server.faults.clear()
    server.asked.clear()
    assert data(release=two).status == 0
    assert server.asked == ["office.zip"]
    assert sorted(path.name for path in left.iterdir()) == ["fetched.txt", "lock"]
    assert tree_sha256(tmp_path / "data" / "office_caltech_10") == TREE


def test_nothing_is_fetched_unless_one_agrees(
    data: Data, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    alone = data(yes=False)
    assert (alone.status, alone.error.count("\n")) == (2, 1)
    assert "expected a terminal, or --yes" in alone.error
    assert "licence" in alone.out
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for answer, status in (("", 0), ("n", 0), ("no", 0)):
        monkeypatch.setattr("builtins.input", lambda prompt, answer=answer: answer)
        refused = data(yes=False)
        assert (refused.status, refused.out.splitlines()[-1]) == (status, "nothing was fetched")
    assert not server.asked
    assert not (tmp_path / "data").exists()
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    assert data(yes=False).status == 0


@pytest.mark.parametrize("spoil", ["bit", "absent", "cut"])
def test_damage_is_noticed_later(spoil: str, data: Data, tmp_path: Path) -> None:
    data()
    victim = tmp_path / "data" / "office_caltech_10" / "dslr" / "mug" / "frame_0028.jpg"
    whole = victim.read_bytes()
    victim.unlink() if spoil == "absent" else victim.write_bytes(whole[:-1] + (b"" if spoil == "cut" else b"\0"))
    said = data()
    assert (said.status, said.error.count("\n")) == (2, 1)
    assert "dslr/mug/frame_0028.jpg" in said.error or "no images" in said.error
    assert "move it away" in said.error


def test_an_unknown_file_is_recorded_and_compared(data: Data, server: Served, tmp_path: Path) -> None:
    first = data(release=UNKNOWN)
    assert "no checksum of office.zip is known: the one it has is written to" in first.out
    shutil.rmtree(tmp_path / "data" / "office_caltech_10")
    assert data("--keep", release=UNKNOWN).status == 0
    shutil.rmtree(tmp_path / "data" / "office_caltech_10")
    (tmp_path / "data" / "downloads" / "office" / "office.zip").unlink()
    server.files["office.zip"] = zipped(office("elsewhere/"))
    other = data(release=UNKNOWN)
    assert (other.status, other.error.count("\n")) == (2, 1)
    assert "does not match the known hash" in other.error
    assert "must be its own, unless you remove that" in other.out
    assert not (tmp_path / "data" / "office_caltech_10").exists()


TREE = hashlib.sha256(
    b"".join(
        hashlib.sha256(content).hexdigest().encode() + f"  {name}\n".encode()
        for name, content in sorted(office("").items())
        if name.endswith(".jpg") and not name.startswith("__")
    )
).hexdigest()


def test_images_are_known_whatever_archive_they_come_in(data: Data, server: Served, tmp_path: Path) -> None:
    release = UNKNOWN._replace(tree=TREE, files=(File("office.tar.gz", 9_000, ()),))
    server.files["office.tar.gz"] = tarred(office())
    assert data(release=release).status == 0
    shutil.rmtree(tmp_path / "data" / "office_caltech_10")
    server.files["office.tar.gz"] = tarred(office("anew/"))
    assert data(release=release).status == 0
    shutil.rmtree(tmp_path / "data" / "office_caltech_10")
    one = "anew/amazon/mug/frame_0008.jpg"
    server.files["office.tar.gz"] = tarred(office("anew/") | {one: image(77)})
    said = data(release=release)
    assert said.status == 2
    assert f"expected {TREE}: the release has changed" in said.error
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["downloads"]


def test_what_was_put_there_by_other_means_is_taken(data: Data, server: Served, tmp_path: Path) -> None:
    archive = tmp_path / "data" / "downloads" / "office" / "office.zip"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(flipped(ARCHIVE))
    wrong = data()
    assert (wrong.status, wrong.error.count("\n")) == (2, 1)
    assert "has the sha256" in wrong.error
    archive.write_bytes(ARCHIVE)
    assert data("--keep").status == 0
    assert archive.exists()
    assert not server.asked
    (tmp_path / "data" / "office_caltech_10" / "checksums.txt").unlink()
    assert "put there by other means; not verified further" in data().out
    assert "every byte as it was released" in data(release=RELEASE._replace(tree=TREE)).out
    (tmp_path / "data" / "office_caltech_10").rename(tmp_path / "data" / "Office_Caltech_DA_Dataset-main")
    assert "in a folder of another name" in data().out
    assert not server.asked


def test_two_processes_do_not_fetch_at_once(data: Data, tmp_path: Path) -> None:
    (tmp_path / "data" / "downloads" / "office").mkdir(parents=True)
    with lock(tmp_path / "data" / "downloads" / "office" / "lock") as mine:
        assert mine
        said = data()
    assert (said.status, said.error.count("\n")) == (2, 1)
    assert "another process is fetching into" in said.error
    assert data().status == 0


def test_a_full_disk_is_said_before_anything_is_fetched(
    data: Data, server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = data(release=RELEASE._replace(unpacked=10**18))
    assert (said.status, said.error.count("\n")) == (2, 1)
    assert "free; expected enough space" in said.error
    assert not server.asked
    downloads = tmp_path / "data" / "downloads" / "office"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 20_000))
    with pytest.raises(UserError, match="needs"):
        check_release_space(RELEASE, downloads)
    (downloads / "office.zip").write_bytes(ARCHIVE)
    check_release_space(RELEASE, downloads)


def test_ctrl_c_is_one_line_and_130(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fdgjax.cli.data.get", stopped)
    said = data()
    assert (said.status, said.error) == (130, "")
    assert said.out.splitlines()[-1].startswith("stopped; the same command goes on")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pasc",), "unknown data set to fetch 'pasc'; expected one of: .*did you mean 'pacs'"),
        (
            ("rotated_digits", "--dir", "d"),
            "data set 'rotated_digits' has nothing to be fetched; expected one of: pacs, ",
        ),
        (("rotated_mnist",), "no --dir; expected the folder that shall hold mnist/"),
        (("pacs",), "no --dir; expected the folder that shall hold PACS/"),
        (("pacs", "--dir", "d", "--mirror", "file:///etc"), "the mirror file:///etc is no address"),
        (("pacs", "--dir", "d", "--mirror", "http://[x", "--yes"), r"cannot fetch PACS.parquet \(http://\[x"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fdgjax(["fdgjax", "data", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error)


def test_the_list_has_a_line_for_each_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert fdgjax(["fdgjax", "data"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RELEASES)
    for line, release in zip(lines, RELEASES.values(), strict=True):
        assert release.licence in line
        assert release.pinned in line


def test_files_that_are_used_as_they_are(data: Data, server: Served, tmp_path: Path) -> None:
    files = tuple(
        File(name, 20, (), f"sha256:{hashlib.sha256(name.encode()).hexdigest()}")
        for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    )
    server.files.update({file.name: file.name.encode() for file in files})
    mnist = RELEASES["mnist"]._replace(files=files, assemble=as_they_are)
    assert data(release=mnist).status == 0
    assert "6,000 images in 6 domains, every byte" in data(release=mnist).out
    assert sha256(tmp_path / "data" / "mnist" / files[0].name) == files[0].checksum[7:]


def test_a_file_of_the_hub_is_in_its_cache(
    data: Data, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mirror; `huggingface_hub` fetches it."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    server.files[f"datasets/a/b/resolve/{'0' * 40}/data/office.zip"] = ARCHIVE
    release = RELEASE._replace(
        files=(RELEASE.files[0]._replace(urls=(f"hf://datasets/a/b@{'0' * 40}/data/office.zip",)),)
    )
    assert data("--mirror", "", release=release).status == 0
    assert tree_sha256(tmp_path / "data" / "office_caltech_10") == TREE
    assert [path.read_bytes() for path in (tmp_path / "hub").rglob("office.zip")] == [ARCHIVE]
