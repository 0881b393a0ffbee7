"""A file arrives whole and right from servers that drop, truncate, corrupt and redirect, or not at all."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import requests

from fdgjax.data.download.http import TRIES, check_answer, download
from fdgjax.data.download.release import File
from fdgjax.utils.errors import UserError
from tests.data.download.server import Fault, Served, changes, drops, in_chunks, says

CONTENT = bytes(range(256)) * 40
KNOWN = File("a.zip", 9_000, (), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")
EXACT = File("a.zip", len(CONTENT), (), exact=True)
ABOUT = File("a.zip", 9_000, ())
FILES = {"checksum": KNOWN, "size": EXACT, "nothing": ABOUT}
HALF = len(CONTENT) // 2


def fetch(served: Served, file: File, folder: Path, *faults: Fault, urls: Sequence[str] = ()) -> None:
    """Downloads a file that is right in the end."""
    served.files["a.zip"] = CONTENT
    served.faults["a.zip"] = list(faults)
    (folder / "work").mkdir()
    try:
        file = file._replace(urls=tuple(urls) or (f"{served.url}/a.zip",))
        assert download(file, folder / "a.zip", folder / "work").read_bytes() == CONTENT
    finally:
        assert not list((folder / "work").iterdir())  # nothing half-done is left
        (folder / "work").rmdir()


def refused(served: Served, file: File, folder: Path, *faults: Fault, urls: Sequence[str] = ()) -> str:
    """What is said of a file that does not arrive, whose name nothing has then."""
    with pytest.raises(UserError, match=r"cannot fetch a\.zip \(http.*; expected a server that has it") as error:
        fetch(served, file, folder, *faults, urls=urls)
    assert "\n" not in str(error.value)
    assert not list(folder.iterdir())
    return str(error.value)


FAULTS: dict[str, tuple[Fault, ...]] = {
    "nothing": (),
    "drop": (drops(HALF),),
    "three drops": (drops(100), drops(HALF), drops(len(CONTENT) - 1)),
    "drop at once": (drops(0),),
    "cut in a chunk": (in_chunks(False), in_chunks(False)),
    "busy": (says(503), says(429)),
    "absent": (says(404),),
    "web page": (changes(lambda content: b"<html>", "text/html; charset=utf-8"),),
    "too much": (changes(lambda content: content * 9),),
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_failing_server_is_asked_again(
    faults: tuple[Fault, ...], file: File, server: Served, tmp_path: Path, waited: list[float]
) -> None:
    fetch(server, file, tmp_path, *faults)
    assert len(server.asked) == len(faults) + 1
    assert waited == [1, 2, 3][: len(faults)]


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_server_that_always_fails_is_given_up(
    faults: tuple[Fault, ...], file: File, server: Served, tmp_path: Path
) -> None:
    if faults:
        refused(server, file, tmp_path, *faults[:1] * 99)
        assert len(server.asked) == TRIES


@pytest.mark.parametrize("change", [lambda c: b"x" + c[1:], lambda c: c[:-1], lambda c: c[:HALF], lambda c: c + b"x"])
def test_what_differs_from_the_checksum_is_fetched_anew(
    change: Callable[[bytes], bytes], server: Served, tmp_path: Path
) -> None:
    fetch(server, KNOWN, tmp_path, changes(change))
    (tmp_path / "a.zip").unlink()
    assert "does not match the known hash" in refused(server, KNOWN, tmp_path, *[changes(change)] * 99)


def test_a_size_that_is_known_is_compared_without_an_announcement(server: Served, tmp_path: Path) -> None:
    fetch(server, EXACT, tmp_path, in_chunks(True))
    (tmp_path / "a.zip").unlink()
    refused(server, EXACT._replace(size=len(CONTENT) + 1), tmp_path, *[in_chunks(True)] * 99)


def test_the_next_server_has_what_the_first_lacks(server: Served, tmp_path: Path) -> None:
    fetch(server, KNOWN, tmp_path, urls=(f"{server.url}/lost", "http://127.0.0.1:9/a.zip", f"{server.url}/a.zip"))


def test_a_proxy_of_the_environment_is_asked(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("http_proxy", server.url)
    server.files["http://data.invalid/a.zip"] = CONTENT
    fetch(server, KNOWN, tmp_path, urls=("http://data.invalid/a.zip",))


def test_redirections_are_followed(server: Served, tmp_path: Path) -> None:
    fetch(server, KNOWN, tmp_path, says(302, Location=f"{server.url}/a.zip"))
    (tmp_path / "a.zip").unlink()
    fetch(server, KNOWN, tmp_path, says(302, Location="/a.zip"))


@pytest.mark.parametrize("to", ["file:///etc/hostname", "ftp://127.0.0.1/a.zip", "gopher://127.0.0.1/", "itself"])
def test_no_redirection_leaves_the_web_or_goes_round_for_ever(to: str, server: Served, tmp_path: Path) -> None:
    place = f"{server.url}/a.zip" if to == "itself" else to
    refused(server, KNOWN, tmp_path, *[says(302, Location=place)] * 999)


@pytest.mark.parametrize(
    ("to", "fit"), [("http://a/b", False), ("HTTP://a/b", False), ("https://a/b", True), ("/b", True)]
)
def test_no_redirection_ends_encryption(to: str, fit: bool) -> None:
    answer = requests.Response()
    answer.url, answer.status_code = "https://a/a", 302
    answer.headers["Location"] = to
    if fit:
        check_answer(ABOUT, answer)
    else:
        with pytest.raises(requests.RequestException, match="not encrypted"):
            check_answer(ABOUT, answer)


def test_a_disk_that_refuses_is_not_the_servers_fault(server: Served, tmp_path: Path) -> None:
    server.files["a.zip"] = CONTENT
    (tmp_path / "work").mkdir()
    with pytest.raises(FileNotFoundError):
        download(KNOWN._replace(urls=(f"{server.url}/a.zip",)), tmp_path / "nowhere" / "a.zip", tmp_path / "work")
    assert len(server.asked) == 1
