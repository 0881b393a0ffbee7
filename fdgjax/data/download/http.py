"""Fetching one file from servers that drop, truncate, corrupt or redirect: complete and verified, or not at all."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pooch
import requests

from fdgjax.data.download.hub import SCHEME, from_hub
from fdgjax.data.download.release import File
from fdgjax.utils.errors import UserError

TRIES = 4
"""Attempts per server, with waits of 1, 2 and 3 seconds between them."""
PIECE = 2**20


def download(file: File, path: Path, work: Path) -> Path:
    """Fetches a file to `path` from the first of its servers that has it; a file of the Hugging Face hub stays in the
    hub's cache.

    Args:
      work: a folder on the same disk for incomplete downloads.

    Returns:
      The path of the file.

    Raises:
      UserError: no server had it; the message has each server's answer.
      OSError: it cannot be written.
    """
    pooch.get_logger().setLevel("WARNING")  # no line for each attempt
    said = []
    for url in file.urls:
        try:
            if url.startswith(SCHEME):
                return from_hub(url, file.checksum.removeprefix("sha256:"))
            os.replace(from_server(url, file, work), path)
            return path
        except (ValueError, requests.RequestException) as error:
            said.append(f"{url}: {error}")
    raise UserError(
        f"cannot fetch {file.name} ({' '.join('; '.join(said).split())}); expected a server that has it: repeat the "
        f"command, give another --mirror, or put the file at {path}"
    )


def from_server(url: str, file: File, folder: Path) -> Path:
    """Fetches a file into a folder; proxies are those of the environment (`HTTPS_PROXY`, `NO_PROXY`).

    Raises:
      ValueError, requests.RequestException: the server does not have it.
    """
    http = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=PIECE,
        headers={"Accept-Encoding": "identity"},  # the bytes of the file, which may be compressed itself
        hooks={"response": partial(check_answer, file)},
    )

    def receive(url: str, path: str, asked_by: pooch.Pooch) -> None:
        http(url, path, asked_by)
        check_bytes(file, os.stat(path).st_size)

    checksums = {file.name: file.checksum or None}
    fetcher = pooch.create(folder, "", registry=checksums, urls={file.name: url}, retry_if_failed=TRIES - 1)
    return Path(fetcher.fetch(file.name, downloader=receive))


def check_answer(file: File, answer: requests.Response, **_: Any) -> None:
    """Raises a `RequestException` if the response's headers show that it is not the file."""
    if answer.is_redirect:
        target = urljoin(answer.url, answer.headers["Location"])
        if answer.url.startswith("https:") and not target.startswith("https:"):
            raise requests.RequestException(f"a redirection to {target}, which is not encrypted")
    elif answer.ok:
        if answer.headers.get("Content-Type", "").startswith("text/html"):
            raise requests.RequestException("a web page instead of the file")
        if length := answer.headers.get("Content-Length", ""):
            check_bytes(file, int(length))


def check_bytes(file: File, size: int) -> None:
    """Raises a `RequestException` for a size that is too large, or that differs from an exact one."""
    if size > 2 * file.size or (file.exact and size != file.size):
        raise requests.RequestException(f"{size:,} bytes instead of {'' if file.exact else 'about '}{file.size:,}")
