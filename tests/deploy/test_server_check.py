"""What a node says of its server before it starts: certificates and clocks, against a server with TLS in a thread."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fdgjax.deploy.keys import make_keys
from fdgjax.deploy.server_check import check_server
from fdgjax.utils.errors import UserError


@contextmanager
def serving(keys: Path | None, ahead: timedelta = timedelta()) -> Iterator[list[str]]:
    """A server whose clock is `ahead`; the words of a node for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(404)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            del timestamp
            return super().date_time_string((datetime.now(UTC) + ahead).timestamp())

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    class Quiet(HTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """A node that does not trust the certificate hangs up."""

    server = Quiet(("127.0.0.1", 0), Handler)
    secured = ["--insecure"]
    if keys is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / "server.pem", keys / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        secured = ["--root-certificates", str(keys / "ca.crt")]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield [*secured, "--superlink", f"127.0.0.1:{server.server_port}", "--node-config", "client=0"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def keys_of(folder: Path, days: float) -> Path:
    """Keys that were made so many days ago."""
    make_keys(folder, 1, [], 8000, datetime.now(UTC) - timedelta(days=days))
    return folder


@pytest.mark.parametrize(("days", "words"), [(31, "certificate has expired"), (-2, "certificate is not yet valid")])
def test_a_certificate_out_of_its_time_is_refused_in_one_line(days: float, words: str, tmp_path: Path) -> None:
    with serving(keys_of(tmp_path / "keys", days)) as node, pytest.raises(UserError, match=words) as raised:
        check_server(node)
    assert f"valid on {datetime.now(UTC):%Y-%m-%d}" in str(raised.value)
    assert "correct the clock, or get a new certificate" in str(raised.value)


def test_a_certificate_of_another_authority_is_refused_in_one_line(tmp_path: Path) -> None:
    other = keys_of(tmp_path / "other", 0) / "ca.crt"
    with serving(keys_of(tmp_path / "keys", 0)) as node, pytest.raises(UserError, match="is not trusted"):
        check_server([*node, "--root-certificates", str(other)])
    for wrong in (tmp_path / "none.crt", tmp_path / "keys" / "client0.pub"):
        with pytest.raises(UserError, match=r"expected the server's ca\.crt"):
            check_server(["--superlink", "127.0.0.1:9", "--root-certificates", str(wrong)])


def test_a_certificate_is_valid_for_a_clock_that_is_an_hour_behind(tmp_path: Path) -> None:
    with serving(keys_of(tmp_path / "keys", -1 / 24)) as node:
        check_server(node)


def test_a_certificate_that_ends_soon_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, days in (("new", 1), ("old", 25)):
        with serving(keys_of(tmp_path / name, days)) as node:
            check_server(node)
    (line,) = caplog.messages
    assert "ask its operator for a new one" in line


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("seconds", [3600, -3600, 400, -10])
def test_a_clock_that_flower_would_refuse_is_told(seconds: float, secured: bool, tmp_path: Path) -> None:
    """A node may be 5 seconds ahead of the server, and 5 minutes behind it."""
    keys = keys_of(tmp_path / "keys", 0) if secured else None
    with serving(keys, timedelta(seconds=seconds)) as node, pytest.raises(UserError, match="set the clock"):
        check_server(node)


@pytest.mark.parametrize("seconds", [0, 200, -4])
def test_a_clock_that_flower_accepts_is_accepted(seconds: float) -> None:
    with serving(None, timedelta(seconds=seconds)) as node:
        check_server(node)


def test_flower_itself_allows_what_is_allowed_here() -> None:
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

    from fdgjax.deploy.server_check import MOST_AHEAD, MOST_BEHIND

    assert MOST_AHEAD == SYSTEM_TIME_TOLERANCE
    assert TIMESTAMP_TOLERANCE <= MOST_BEHIND <= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE


def test_a_server_that_does_not_answer_is_waited_for_by_flower() -> None:
    for address in ("127.0.0.1:9", "no address"):
        check_server(["--insecure", "--superlink", address])
