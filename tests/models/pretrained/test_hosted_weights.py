"""Weights by the name of a repository: fetched once from a server on loopback, verified, and then read without it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
from safetensors.numpy import save

from fdgjax.config import read_config
from fdgjax.config.make import make_config
from fdgjax.models import MODELS
from fdgjax.models.pretrained import hosted_weights
from fdgjax.models.pretrained.convert import read_weights
from fdgjax.models.pretrained.hosted_weights import HOSTED, Hosted
from fdgjax.models.pretrained.weight_files import weights_in_words
from fdgjax.models.pretrained.weight_names import PRETRAINED
from fdgjax.utils.errors import UserError
from tests.conformance.weights import FILES
from tests.data.download.server import Served, serving

NAME, NETWORK = "timm/resnet18.tv_in1k", "resnet18_imagenet"
REVISION = HOSTED[NAME].revision
CONTENT = save(FILES[NETWORK]())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A hub that has the file, whose checksum is the known one, and an empty cache."""
    known = Hosted(NETWORK, REVISION, hashlib.sha256(CONTENT).hexdigest(), "")
    monkeypatch.setattr(hosted_weights, "HOSTED", {**HOSTED, NAME: known})
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with serving() as made:
        made.files[f"{NAME}/resolve/{REVISION}/model.safetensors"] = CONTENT
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


def test_every_entry_is_a_revision_of_weights_for_a_network_with_names() -> None:
    for name, entry in HOSTED.items():
        assert entry.network in PRETRAINED.keys() & MODELS.keys()
        assert (len(entry.revision), len(entry.sha256)) == (40, 64), name
        assert weights_in_words(name) == f"`{name}` (BSD-3-Clause, Hugging Face, revision {entry.revision})"
        assert set(entry.revision + entry.sha256) <= set("0123456789abcdef")


def test_weights_are_fetched_once_and_then_read_without_a_network(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_weights(NAME, NETWORK)
    assert first.tensors.keys() == FILES[NETWORK]().keys()
    np.testing.assert_array_equal(first.tensors["fc.bias"], FILES[NETWORK]()["fc.bias"])
    assert hub.asked
    hub.asked.clear()
    hub.files.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    np.testing.assert_array_equal(read_weights(NAME, NETWORK).tensors["conv1.weight"], first.tensors["conv1.weight"])
    assert not hub.asked


def one_line(name: str = NAME, network: str = NETWORK) -> str:
    with pytest.raises(UserError) as caught:
        read_weights(name, network)
    said = str(caught.value)
    assert "\n" not in said
    assert name in said
    return said


def test_other_bytes_are_refused(hub: Served) -> None:
    (path,) = hub.files
    hub.files[path] = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    said = one_line()
    assert hashlib.sha256(hub.files[path]).hexdigest() in said
    assert f"expected {hashlib.sha256(CONTENT).hexdigest()}: delete " in said


def test_what_cannot_be_fetched(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files.clear()
    assert "is not in the cache and cannot be fetched (" in one_line()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "is not in the cache and cannot be fetched (" in one_line()


def test_no_network(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between tries
    assert "expected a network or a mirror in HF_ENDPOINT" in one_line()


def test_weights_of_another_network(hub: Served) -> None:
    said = one_line(network="resnet50_imagenet")
    assert "for the model 'resnet50_imagenet'; expected config.model.name=resnet18_imagenet" in said
    assert not hub.asked


def test_a_repository_that_is_not_known() -> None:
    said = one_line("timm/resnet34.tv_in1k")
    assert "which is no file; expected a .safetensors or .pth file, or one of efficientnet_lite0, timm/" in said


def test_images_are_scaled_as_the_weights_expect() -> None:
    config = make_config("fedavg", "pacs")
    config.model.update({"name": NETWORK, "pretrained": NAME})
    assert read_config(config).data.scaling == "imagenet"
