"""One file from servers that drop, truncate, corrupt or redirect: resumed, checked, and then given its name.

What has arrived is `NAME.part`. A part is continued where the server can: of a file with a known checksum from any
mirror, since the checksum decides in the end; of another only from the same server, whose `ETag` or `Last-Modified`
says that it still has the same file (`NAME.part.from`).
"""

import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.errors import UserError
from fdgjax.fetching.release import File, amount
from fdgjax.files import sync, write_json

TRIES = 5
"""How often in a row all servers may fail without one more byte."""
LONGEST_WAIT = 30.0
TIMEOUT = 30.0
PIECE = 2**20
REDIRECTIONS = 5
SLACK = 2**26
"""Bytes by which a file of about a size may exceed twice that size."""


class Failed(Exception):
    """A server's answer that is not the file, with its status; another server or another try may have it."""

    def __init__(self, said: str, status: int = 0) -> None:
        super().__init__(said)
        self.status = status


class Means(NamedTuple):
    """How a transfer speaks and waits.

    Attributes:
      say: takes a line for the user.
      moved: takes the bytes that are there and those that are expected, at every piece.
      wait: takes seconds.
    """

    say: Callable[[str], None] = print
    moved: Callable[[int, int], None] = lambda have, size: None
    wait: Callable[[float], None] = time.sleep


def download(file: File, urls: Sequence[str], path: Path, means: Means) -> str:
    """Fetches a file to `path`, in a folder that exists; goes on with what an earlier call left.

    Returns:
      The address that had it.

    Raises:
      UserError: no server had it, with what each said.
      OSError: it cannot be written.
    """
    part, reached, tries = part_of(path), 0, 0
    said: dict[str, str] = {}
    while tries < TRIES:
        for url in urls:
            try:
                receive(url, file, part, means)
                check(file, part)
            except Failed as failure:
                said[url] = str(failure)
                continue
            sync(part)
            os.replace(part, path)
            note_of(part).unlink(missing_ok=True)
            sync(path.parent)
            return url
        have = size_of(part)
        tries = 0 if have > reached else tries + 1
        reached = max(reached, have)
        if tries < TRIES:
            means.say(f"{file.name}: {'; '.join(said.values())}; trying again, {amount(have)} are here")
            means.wait(min(2.0**tries, LONGEST_WAIT))
    reasons = "; ".join(f"{url}: {reason}" for url, reason in said.items())
    raise UserError(
        f"cannot fetch {file.name} ({reasons}); expected a server that has it: repeat the command, which goes on where "
        f"it stopped, give another --mirror, or put the file at {path}"
    )


def receive(url: str, file: File, part: Path, means: Means) -> None:
    """Adds what a server sends to `part`, or writes it anew where it cannot be continued.

    Raises:
      Failed: an answer that is not the file, or not all of it.
    """
    have = size_of(part)
    if file.exact and have >= file.size:
        return
    try:
        asked = request(url, headers_for(url, file, part, have))
    except Failed as failure:
        if failure.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            if file.checksum:  # all of it may be here already: the checksum decides
                return
            forget(part)
        raise
    with asked as answer:
        start = accepted(answer, file, part, have)
        length = answer.headers.get("Content-Length", "")
        expected = start + int(length) if length.isdecimal() else 0
        within(file, expected)
        write_json(note_of(part), {"url": url, "validator": validator(answer)})
        with part.open("ab" if start else "wb") as out:
            have = start
            while piece := read(answer):
                have += len(piece)
                if have > most(file):
                    forget(part)
                    raise Failed(f"more than the {amount(file.size)} that it has")
                out.write(piece)
                means.moved(have, expected or file.size)
    if have < expected:
        raise Failed(f"the connection ended after {have:,} of {expected:,} bytes")


def headers_for(url: str, file: File, part: Path, have: int) -> dict[str, str]:
    """The headers that ask for the rest of a part, or for all where it cannot be continued."""
    headers = {"User-Agent": "fdgjax", "Accept-Encoding": "identity"}
    try:
        note = json.loads(note_of(part).read_text(encoding="utf-8"))
        same = str(note["validator"]) if note["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        same = ""
    if have and (file.checksum or same):
        headers["Range"] = f"bytes={have}-"
        if same:
            headers["If-Range"] = same
    return headers


def request(url: str, headers: dict[str, str]) -> Any:
    """The answer of a server, after at most `REDIRECTIONS` others, all of them http or https."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        Redirects(),
    ):
        opener.add_handler(handler)
    try:
        return opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise Failed(f"status {error.code} ({first_line(error.reason)})", error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(first_line(getattr(error, "reason", None) or error) or type(error).__name__) from error


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows few redirections, to http and https alone, and from https to https alone."""

    max_redirections = REDIRECTIONS
    max_repeats = 2

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The next request."""
        old, new = req.full_url.partition(":")[0].lower(), newurl.partition(":")[0].lower()
        if new not in ("http", "https") or (old, new) == ("https", "http"):
            raise Failed(f"a redirection from {old} to {new}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def accepted(answer: Any, file: File, part: Path, have: int) -> int:
    """Where the bytes of an answer belong: after those that are there, or at the start.

    Raises:
      Failed: a page, or other bytes than were asked for.
    """
    if answer.headers.get_content_type() == "text/html":
        raise Failed(f"a web page instead of {file.name}")
    if answer.status == http.client.PARTIAL_CONTENT:
        first = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
        if not first or int(first[1]) != have:
            forget(part)
            raise Failed("other bytes than those asked for")
        return have
    if answer.status != http.client.OK:
        raise Failed(f"status {answer.status}")
    return 0


def within(file: File, expected: int) -> None:
    """Raises `Failed` for a file that is announced with another size than it has."""
    if file.exact and expected and expected != file.size:
        raise Failed(f"a file of {expected:,} bytes instead of {file.size:,}")
    if expected > most(file):
        raise Failed(f"a file of {amount(expected)} instead of about {amount(file.size)}")


def most(file: File) -> int:
    """The most bytes that are taken."""
    return file.size if file.exact else 2 * file.size + SLACK


def validator(answer: Any) -> str:
    """What tells a server's file from a later one: a strong ETag, or a date."""
    tag = str(answer.headers.get("ETag", ""))
    return tag if tag.startswith('"') else str(answer.headers.get("Last-Modified", ""))


def read(answer: Any) -> bytes:
    """The next piece; empty at the end."""
    try:
        return bytes(answer.read(PIECE))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(f"the connection broke ({first_line(error) or type(error).__name__})") from error


def check(file: File, path: Path) -> None:
    """Raises `Failed` where a file is not the one that is known, and forgets it then."""
    found = size_of(path)
    if file.exact and found != file.size:
        forget(path)
        raise Failed(f"{found:,} bytes instead of {file.size:,}")
    kind, _, wanted = file.checksum.partition(":")
    if wanted and (got := digests(path, kind)[kind]) != wanted:
        forget(path)
        raise Failed(f"the {kind} {got} instead of {wanted}")


def digests(path: Path, *kinds: str) -> dict[str, str]:
    """Hexadecimal checksums of a file's bytes, read once."""
    found = {kind: hashlib.new(kind, usedforsecurity=kind != "md5") for kind in kinds}
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            for digest in found.values():
                digest.update(piece)
    return {kind: digest.hexdigest() for kind, digest in found.items()}


def part_of(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_name(f"{path.name}.part")


def note_of(part: Path) -> Path:
    """Where it is noted which server's file a part is of."""
    return part.with_name(f"{part.name}.from")


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def forget(part: Path) -> None:
    """Removes a part, and what is noted of it."""
    part.unlink(missing_ok=True)
    note_of(part).unlink(missing_ok=True)


def first_line(said: object) -> str:
    """What a server or the system said, on one line."""
    return " ".join(str(said).split())[:200]
