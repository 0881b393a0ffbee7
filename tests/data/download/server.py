"""A server on loopback that does to each request what a test has asked for."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Served(NamedTuple):
    """What a server has, what it does wrong, and what it was asked.

    files: by their paths, or their addresses where it is asked as a proxy. faults: by the same, one for each request to
    come; then it behaves. asked: the path of each request. It is a Hugging Face hub, too, as far as one file needs it.
    """

    url: str
    files: dict[str, bytes]
    faults: dict[str, list["Fault"]]
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    """Answers with a file, or with its head."""

    served: Served

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.served.asked.append(name)
        faults = self.served.faults.get(name, [])
        (faults.pop(0) if faults else whole)(self, self.served.files.get(name))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


Fault = Callable[[Handler, bytes | None], None]


def send(handler: Handler, code: int, content: bytes = b"", /, **headers: object) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()
    if handler.command == "GET":
        with contextlib.suppress(OSError):  # who notices the size does not wait for the end
            handler.wfile.write(content)


def whole(handler: Handler, content: bytes | None) -> None:
    """The file, where there is one."""
    content, code = content or b"", 404 if content is None else 200
    revision = handler.path.partition("/resolve/")[2][:40]
    tag = f'"{hashlib.sha256(content).hexdigest()}"'
    send(handler, code, content, Content_Length=len(content), ETag=tag, X_Repo_Commit=revision)


def drops(after: int) -> Fault:
    """The connection ends after so many bytes of the file."""

    def fault(handler: Handler, content: bytes | None) -> None:
        content = content or b""
        send(handler, 200, content[:after], Content_Length=len(content))

    return fault


def changes(change: Callable[[bytes], bytes], kind: str = "application/zip") -> Fault:
    """Other bytes, announced as if they were right."""

    def fault(handler: Handler, content: bytes | None) -> None:
        sent = change(content or b"")
        send(handler, 200, sent, Content_Length=len(sent), Content_Type=kind)

    return fault


def in_chunks(whole: bool) -> Fault:
    """Without a length, as servers send what they make on the way; all of it, or all but the end."""

    def fault(handler: Handler, content: bytes | None) -> None:
        first, rest = (content or b"")[:1000], (content or b"")[1000:]
        end = b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest) if whole else b"%x\r\n" % len(rest)
        send(handler, 200, b"%x\r\n%s\r\n" % (len(first), first) + end, Transfer_Encoding="chunked")

    return fault


def says(code: int, **headers: object) -> Fault:
    """A status without content."""
    return lambda handler, content: send(handler, code, Content_Length=0, **headers)


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    """A server in a thread."""

    class Own(Handler):
        """One server's, with its own `served`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        Own.served = Served(f"http://127.0.0.1:{server.server_port}", {}, {}, [])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Own.served
        finally:
            server.shutdown()
            thread.join()
