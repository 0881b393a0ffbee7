"""The commands of docs/deployment.md, from its own text: TLS, registered keys, and three nodes on this machine."""

import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.deploy.loopback import Place, Secured, free_port, processes, start, still_there
from tests.docs.examples import blocks
from tests.docs.pages import ROOT

pytest.importorskip("flwr")
BLOCKS = list(blocks(ROOT / "docs" / "deployment.md"))
CLIENTS, CLASSES, PATIENCE_SECONDS = 3, ("benign", "malignant"), 900.0


def script(folder: Path, port: int) -> str:
    """All commands of the page in their order, as they stand there but for the server's name and port and the number of
    rounds. A hospital's command is for each, with its own number, folder and port. What keeps running does so in the
    background, and the SuperLink is waited for, as a reader would."""
    commands = []
    for block in BLOCKS:
        text = block.text.strip().replace("server.example", "localhost").replace("8000", str(port))
        text = text.replace("--config.rounds=50", "--config.rounds=2")
        if text.startswith("flower-superlink"):
            text += f" &\nuntil (echo > /dev/tcp/localhost/{port}) 2> /dev/null; do kill -0 $!; sleep 0.2; done"
        if text.startswith("fdgjax flower --node"):
            text = "\n".join(of_hospital(text, client, folder) for client in range(CLIENTS))
        if text.startswith("fdgjax flower --audit"):
            text = text.replace("/data/", f"{folder}/hospital0/")
        if block.kind == "shell" and not text.startswith("pip install"):
            commands.append(text)
    return "\n".join(commands)


def of_hospital(command: str, client: int, folder: Path) -> str:
    """The command of client 0 as that of another, on this machine."""
    own = {"client0": f"client{client}", "client=0": f"client={client}", "9094": str(free_port())}
    for word, instead in {**own, "/data/": f"{folder}/hospital{client}/"}.items():
        assert word in command
        command = command.replace(word, instead)
    return f"{command} &"


def write_images(folder: Path, client: int) -> None:
    """A hospital's images: the classes differ in brightness."""
    rng = np.random.default_rng(client)
    for label, name in enumerate(CLASSES):
        into = folder / f"hospital{client}" / "images" / name
        into.mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 120, (64, 64, 3), np.uint8) + np.uint8(120 * label)
            Image.fromarray(pixels).save(into / f"{number}.png")


def masked(text: str) -> set[str]:
    """The lines of an output, without its numbers and folders."""
    return {re.sub(r"/\S+/|[\d,.]*\d", "*", line).strip() for line in text.splitlines()}


@pytest.mark.slow
def test_the_pages_commands_train_three_hospitals(tmp_path: Path) -> None:
    for client in range(CLIENTS):
        write_images(tmp_path, client)
    place = Place(tmp_path, free_port(), Secured())
    with processes(tmp_path) as keep:
        page = keep(start(place, "page", ["bash", "-e", "-c", script(tmp_path, place.port)]))
        try:
            status = page.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            status = -1
    said = (tmp_path / "page.log").read_text()
    assert status == 0, said[-3000:]
    assert still_there(tmp_path) == []
    (shown,) = (block.text for block in BLOCKS if block.kind == "text" and "waiting for" in block.text)
    assert masked(shown) <= masked(said), said[-3000:]
    assert (tmp_path / "server" / "model.safetensors").exists()
    assert all(list(tmp_path.glob(f"hospital{client}/states/*/model.safetensors")) for client in range(CLIENTS))


def test_the_pages_configuration_is_what_is_written_with_keys(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from fdgjax.deploy.keys import connection

    (shown,) = (block.text for block in BLOCKS if block.text.startswith("[superlink]"))
    assert tomllib.loads(shown) == tomllib.loads(connection("server.example:8000", Path("/home/operator/keys/ca.crt")))
