"""A file arrives whole and right from servers that drop, truncate, corrupt and redirect, or not at all."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fdgjax.errors import UserError
from fdgjax.fetching.release import File
from fdgjax.fetching.transfer import TRIES, Means, download, note_of, part_of
from fdgjax.files import write_json

from .server import Fault, Served, changes, drops, in_chunks, other_bytes, says, whole, without_ranges

CONTENT = bytes(range(256)) * 40
KNOWN = File("a.zip", len(CONTENT), (), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", exact=True)
ABOUT = File("a.zip", 9_000, ())
HALF = len(CONTENT) // 2


def flipped(content: bytes) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


def fetch(served: Served, file: File, folder: Path, *faults: Fault, urls: Sequence[str] = ()) -> list[float]:
    """Downloads; returns how long it waited between tries."""
    served.files["a.zip"] = CONTENT
    served.faults["a.zip"] = list(faults)
    waited: list[float] = []
    means = Means(say=lambda line: None, wait=waited.append)
    download(file, urls or (f"{served.url}/a.zip",), folder / "a.zip", means)
    assert (folder / "a.zip").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["a.zip"]
    return waited


FAULTS: dict[str, Sequence[Fault]] = {
    "nothing": (),
    "drop": (drops(HALF),),
    "three drops": (drops(100), drops(HALF), drops(HALF + 1)),
    "drop at once": (drops(0),),
    "drop, then no ranges": (drops(HALF), without_ranges),
    "drop, then other bytes": (drops(HALF), other_bytes),
    "cut in a chunk": (in_chunks(False), in_chunks(False)),
    "busy": (says(503), says(429)),
    "absent": (says(404),),
    "web page": (changes(lambda content: b"<html>", "text/html"),),
}


@pytest.mark.parametrize("file", [KNOWN, ABOUT], ids=["known", "about"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_failing_server_is_asked_again(faults: Sequence[Fault], file: File, server: Served, tmp_path: Path) -> None:
    waited = fetch(server, file, tmp_path, *faults)
    assert len(waited) == sum(fault is not without_ranges for fault in faults)


@pytest.mark.parametrize(
    "change", [flipped, lambda c: c[:-1], lambda c: c[:HALF], lambda c: c + b"x"], ids=["bit", "byte", "half", "more"]
)
def test_what_differs_from_the_checksum_is_fetched_anew(
    change: Callable[[bytes], bytes], server: Served, tmp_path: Path
) -> None:
    fetch(server, KNOWN, tmp_path, changes(change))
    by_checksum_alone = KNOWN._replace(exact=False)
    (tmp_path / "a.zip").unlink()
    fetch(server, by_checksum_alone, tmp_path, changes(change))


def test_a_file_without_a_length_is_whole_at_its_end(server: Served, tmp_path: Path) -> None:
    assert fetch(server, ABOUT, tmp_path, in_chunks(True)) == []


def test_a_part_is_continued_where_it_ended(server: Served, tmp_path: Path) -> None:
    fetch(server, ABOUT, tmp_path, drops(100), drops(HALF))
    assert [asked for _, asked in server.asked] == ["", "bytes=100-", f"bytes={HALF}-"]


def test_a_part_of_a_known_file_is_continued_from_any_server(server: Served, tmp_path: Path) -> None:
    part_of(tmp_path / "a.zip").write_bytes(CONTENT[:HALF])
    fetch(server, KNOWN, tmp_path)
    assert server.asked == [("a.zip", f"bytes={HALF}-")]


def test_a_part_of_an_unknown_file_is_continued_only_if_the_server_still_has_it(server: Served, tmp_path: Path) -> None:
    part_of(tmp_path / "a.zip").write_bytes(b"from elsewhere")
    fetch(server, ABOUT, tmp_path)
    (tmp_path / "a.zip").unlink()
    # After the drop the file on the server is another one, with another ETag: a mixture would be neither.
    before: Fault = lambda handler, content: drops(HALF)(handler, bytes(len(CONTENT)))  # noqa: E731
    fetch(server, ABOUT, tmp_path, before, lambda handler, content: whole(handler, content, '"two"'))
    assert [asked for _, asked in server.asked] == ["", "", f"bytes={HALF}-"]


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 5])
@pytest.mark.parametrize("file", [KNOWN, KNOWN._replace(exact=False), ABOUT], ids=["exact", "known", "about"])
@pytest.mark.parametrize("noted", [False, True], ids=["", "noted"])
def test_a_part_that_is_all_of_the_file_or_more_ends_well(
    noted: bool, file: File, size: int, server: Served, tmp_path: Path
) -> None:
    part = part_of(tmp_path / "a.zip")
    part.write_bytes((CONTENT + b"12345")[:size])
    if noted:
        write_json(note_of(part), {"url": f"{server.url}/a.zip", "validator": '"one"'})
    fetch(server, file, tmp_path)


def test_the_next_server_has_what_the_first_lacks(server: Served, tmp_path: Path) -> None:
    urls = (f"{server.url}/lost.zip", "http://127.0.0.1:9/a.zip", f"{server.url}/a.zip")
    assert fetch(server, KNOWN, tmp_path, urls=urls) == []


def test_redirections_are_followed_to_the_web_alone(server: Served, tmp_path: Path) -> None:
    fetch(server, KNOWN, tmp_path, says(302, Location=f"{server.url}/a.zip"))


@pytest.mark.parametrize("to", ["file:///etc/hostname", "ftp://127.0.0.1/a.zip", "gopher://127.0.0.1/", "itself"])
def test_no_redirection_leaves_the_web_or_goes_round_for_ever(to: str, server: Served, tmp_path: Path) -> None:
    place = f"{server.url}/a.zip" if to == "itself" else to
    with pytest.raises(UserError, match=r"cannot fetch a\.zip \(.*: (status 302|a redirection)") as error:
        fetch(server, KNOWN, tmp_path, *[says(302, Location=place)] * 99)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", [KNOWN, ABOUT], ids=["known", "about"])
@pytest.mark.parametrize(
    ("fault", "asked"), [(says(404), TRIES), (says(503), TRIES), (drops(100), TRIES + 1)], ids=["404", "503", "drop"]
)
def test_a_server_that_always_fails_is_given_up(
    fault: Fault, asked: int, file: File, server: Served, tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match=r"cannot fetch a\.zip \(http.*; expected a server that has it: repeat"
    ) as error:
        fetch(server, file, tmp_path, *[fault] * 99)
    assert "\n" not in str(error.value)
    assert len(server.asked) == asked
    assert not (tmp_path / "a.zip").exists()


def test_waits_grow_between_tries(server: Served, tmp_path: Path) -> None:
    assert fetch(server, KNOWN, tmp_path, *[says(503)] * 4) == [2.0, 4.0, 8.0, 16.0]
    assert len(server.asked) == 5


def test_no_more_is_taken_than_a_file_can_have(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.fetching.transfer.SLACK", 0)
    endless = changes(lambda content: content * 9)
    with pytest.raises(UserError, match="a file of 92,160 bytes instead of about 9,000 bytes"):
        fetch(server, ABOUT, tmp_path, *[endless] * TRIES)

    def unannounced(handler: object, content: bytes | None) -> None:
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]
        handler.wfile.write((content or b"") * 9)  # type: ignore[attr-defined]
        handler.close_connection = True  # type: ignore[attr-defined]

    with pytest.raises(UserError, match="more than the"):
        fetch(server, KNOWN, tmp_path, *[unannounced] * TRIES)
    assert not part_of(tmp_path / "a.zip").exists()
    assert not note_of(part_of(tmp_path / "a.zip")).exists()


def test_a_disk_that_refuses_is_not_the_servers_fault(server: Served, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fetch(server, KNOWN, tmp_path / "nowhere")
    assert len(server.asked) == 1
