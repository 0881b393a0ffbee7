"""A server on loopback that does to each request what a test has asked for."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Served(NamedTuple):
    """What a server has, what it does wrong, and what it was asked.

    files: by their names. faults: by the name of a file, one for each request to come; then it behaves. asked: the file
    and the `Range` of each request.
    """

    url: str
    files: dict[str, bytes]
    faults: dict[str, list["Fault"]]
    asked: list[tuple[str, str]]


class Handler(BaseHTTPRequestHandler):
    """Answers with a file, or a part of it."""

    served: Served

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.served.asked.append((name, self.headers.get("Range", "")))
        faults = self.served.faults.get(name, [])
        (faults.pop(0) if faults else whole)(self, self.served.files.get(name))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


Fault = Callable[[Handler, bytes | None], None]


def head(handler: Handler, code: int, **headers: object) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()


def whole(handler: Handler, content: bytes | None, etag: str = '"one"') -> None:
    """All that was asked for, as RFC 9110 has it."""
    if content is None:
        return head(handler, 404, Content_Length=0)
    asked = handler.headers.get("Range", "")
    first = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
    if handler.headers.get("If-Range", etag) != etag or not asked:
        head(handler, 200, Content_Length=len(content), ETag=etag)
        handler.wfile.write(content)
        return None
    if first >= len(content):
        return head(handler, 416, Content_Length=0)
    rest = content[first:]
    reach = f"bytes {first}-{len(content) - 1}/{len(content)}"
    head(handler, 206, Content_Length=len(rest), Content_Range=reach, ETag=etag)
    handler.wfile.write(rest)
    return None


def drops(after: int) -> Fault:
    """The connection ends after so many bytes of the file."""

    def fault(handler: Handler, content: bytes | None) -> None:
        assert content is not None
        first = int((handler.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
        rest = content[first:]
        code, more = (
            (206, {"Content_Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}) if first else (200, {})
        )
        head(handler, code, Content_Length=len(rest), ETag='"one"', **more)
        handler.wfile.write(content[first:after])
        handler.wfile.flush()
        handler.close_connection = True

    return fault


def changes(change: Callable[[bytes], bytes], kind: str = "application/zip") -> Fault:
    """Other bytes, announced as if they were right; without ranges."""

    def fault(handler: Handler, content: bytes | None) -> None:
        assert content is not None
        sent = change(content)
        head(handler, 200, Content_Length=len(sent), Content_Type=kind)
        with contextlib.suppress(OSError):  # who notices the size does not wait for the end
            handler.wfile.write(sent)

    return fault


def in_chunks(whole: bool) -> Fault:
    """Without a length, as servers send what they make on the way; all of it, or all but the end."""

    def fault(handler: Handler, content: bytes | None) -> None:
        assert content is not None
        head(handler, 200, Transfer_Encoding="chunked", ETag='"one"')
        handler.wfile.write(b"%x\r\n%s\r\n" % (1000, content[:1000]))
        rest = content[1000:]
        handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest) if whole else b"%x\r\n" % len(rest))
        handler.close_connection = True

    return fault


def says(code: int, **headers: object) -> Fault:
    """A status without content."""
    return lambda handler, content: head(handler, code, Content_Length=0, **headers)


def without_ranges(handler: Handler, content: bytes | None) -> None:
    """All of the file, whatever part was asked for."""
    changes(bytes)(handler, content)


def other_bytes(handler: Handler, content: bytes | None) -> None:
    """A part, but not the one that was asked for."""
    assert content is not None
    head(handler, 206, Content_Length=3, Content_Range=f"bytes 0-2/{len(content)}")
    handler.wfile.write(content[:3])


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    """A server in a thread."""
    handler = type("Own", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.served = Served(f"http://127.0.0.1:{server.server_port}", {}, {}, [])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield handler.served
        finally:
            server.shutdown()
            thread.join()
