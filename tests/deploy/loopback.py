"""A whole federation on this machine: a SuperLink, a SuperNode for each client, and a run; nothing is left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fdgjax.deploy.keys import AUTHORITY, CERTIFICATE, KEY
from fdgjax.utils.errors import UserError

LINK = "loopback"
"""The name of the SuperLink in Flower's own configuration."""
MARK = "FDGJAX_LOOPBACK"
"""The variable that all processes of a federation inherit: its folder."""


class Secured(NamedTuple):
    """Settings: TLS, by the keys in a folder, and nodes that show a key; whether a node has one process for all
    messages. keys: None for no TLS and no keys."""

    keys: Path | None = None
    authentication: bool = False
    warm: bool = False


class Place(NamedTuple):
    """A loopback federation: a folder for its logs and Flower's files, the SuperLink's port, and how it is secured."""

    folder: Path
    port: int
    secured: Secured


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def program(name: str) -> str:
    """One of Flower's programs, of this environment."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        raise UserError(
            f"Flower's {name} is not installed; expected it beside {sys.executable}; pip install fdgjax[flower]"
        )
    return str(found)


def environment(place: Place) -> dict[str, str]:
    """Flower's environment: its own folder, this environment's programs, no telemetry."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    home = {MARK: str(place.folder), "FLWR_HOME": str(place.folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"}
    return {**os.environ, **home, "PATH": path, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}


def start(place: Place, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A program in a process group of its own, with a log."""
    with (place.folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            list(command), stdout=log, stderr=log, env=environment(place), start_new_session=True, cwd=place.folder
        )


def stop(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """Ends a program with everything that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        if not group_lives(process.pid):
            return


def group_lives(group: int) -> bool:
    """Whether a process of this group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def start_link(place: Place) -> subprocess.Popen[bytes]:
    """The SuperLink, ready to be asked; its state outlives it in a file."""
    keys, secured = place.secured.keys, ["--insecure"]
    if keys is not None:
        secured = [f"--ssl-ca-certfile={keys / AUTHORITY}", f"--ssl-certfile={keys / CERTIFICATE}"]
        secured += [f"--ssl-keyfile={keys / KEY}"]
    if place.secured.authentication:
        secured.append("--enable-supernode-auth")
    write_link(place)
    process = start(
        place,
        "superlink",
        [program("flower-superlink"), *secured, f"--port={place.port}", "--disable-runtime-dependency-installation"],
    )
    wait_for(place, process)
    return process


def write_link(place: Place) -> None:
    """The SuperLink's address, for the `flwr` command."""
    (place.folder / "flwr").mkdir(parents=True, exist_ok=True)
    keys = place.secured.keys
    how = "insecure = true" if keys is None else f'root-certificates = "{keys / AUTHORITY}"'
    text = f'[superlink]\ndefault = "{LINK}"\n\n[superlink.{LINK}]\naddress = "127.0.0.1:{place.port}"\n{how}\n'
    (place.folder / "flwr" / "config.toml").write_text(text)


def wait_for(place: Place, process: subprocess.Popen[bytes], patience: float = 120.0) -> None:
    """Returns once the SuperLink listens.

    Raises:
      UserError: it ended, or does not listen.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", place.port), 1):
            return
        time.sleep(0.2)
    stop(process)
    raise UserError(f"the SuperLink did not start; see {place.folder / 'superlink.log'}")


def start_node(place: Place, client: int, settings: str, key: Path | None = None) -> subprocess.Popen[bytes]:
    """A SuperNode with its `--node-config`; `key` is its private one."""
    keys = place.secured.keys
    secured = ["--insecure"] if keys is None else [f"--root-certificates={keys / AUTHORITY}"]
    warm = [sys.executable, "-m", "fdgjax", "flower", "--node"]
    command = warm if place.secured.warm else [program("flower-supernode")]
    if key is not None:
        secured.append(f"--auth-supernode-private-key={key}")
    return start(
        place,
        f"node{client}",
        [
            *(*command, *secured, f"--superlink=127.0.0.1:{place.port}", f"--port={free_port()}"),
            *("--node-config", settings),
        ],
    )


def register(place: Place, client: int) -> None:
    """Makes a node's public key known to the SuperLink, by its client's name.

    Raises:
      UserError: Flower refuses it.
    """
    assert place.secured.keys is not None
    key = place.secured.keys / f"client{client}.pub"
    flwr(place, "supernode", "register", str(key), LINK, "--name", f"client{client}")


def flwr(place: Place, *words: str) -> str:
    """Flower's own command; what it prints.

    Raises:
      UserError: it fails.
    """
    done = subprocess.run(
        [program("flwr"), *words], env=environment(place), capture_output=True, text=True, check=False
    )
    with (place.folder / "flwr.log").open("a") as log:
        log.write(done.stdout + done.stderr)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise UserError(f"flwr {' '.join(words[:2])} failed ({said}); see {place.folder / 'flwr.log'}")
    return done.stdout


def start_run(place: Place, app: Path) -> subprocess.Popen[bytes]:
    """`flwr run`, which ends when the run does; its log is `run.log`."""
    return start(place, "run", [program("flwr"), "run", str(app), LINK, "--stream"])


def still_there(folder: Path) -> list[int]:
    """The processes of the federation in a folder, by their environment: some are in process groups of their own."""
    word, found = f"{MARK}={folder}".encode(), []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or over by now
            if word in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return [process for process in found if process != os.getpid()]


def workers_of(node: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a warm node has started for its messages."""
    threads = Path(f"/proc/{node.pid}/task").glob("*/children")
    return [int(word) for children in threads for word in children.read_text().split()]


def end_all(folder: Path, patience: float = 3.0) -> None:
    """Returns when no process of the federation is left; those that do not end by themselves are killed."""
    end = time.monotonic() + patience
    while left := still_there(folder):
        if time.monotonic() > end:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        time.sleep(0.2)


@contextmanager
def processes(folder: Path) -> Iterator[Callable[[subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    """Programs that are handed to what this yields are ended with the block, the last first, and all that they
    started."""
    started: list[subprocess.Popen[bytes]] = []

    def keep(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        started.append(process)
        return process

    try:
        yield keep
    finally:
        for process in reversed(started):
            stop(process)
        end_all(folder)
