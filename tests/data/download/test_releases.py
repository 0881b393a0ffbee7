"""The sources agree with the loaders, and with the real data where they are at hand."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from huggingface_hub import parse_hf_uri

from fdgjax.data.download.archives import OPENERS
from fdgjax.data.download.releases import RELEASES
from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.loading import DATASETS
from fdgjax.utils.checksums import sha256, tree_sha256

DIGITS = {"sha256": 64, "md5": 32}


def test_every_data_set_that_needs_a_folder_can_be_fetched() -> None:
    own = {"rotated_digits", "folder", "table", "arrays"}
    assert {release.data_set for release in RELEASES.values()} == DATASETS.keys() - own
    for name, layout in LAYOUTS.items():
        if layout.fetched_as:
            release = RELEASES[layout.fetched_as]
            assert (release.data_set, release.folder) == (name, layout.folder)


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_complete(name: str) -> None:
    release = RELEASES[name]
    assert release.licence
    assert release.unpacked > 0
    assert len({file.name for file in release.files}) == len(release.files)
    for file in release.files:
        kind, _, digest = file.checksum.partition(":")
        assert not kind or re.fullmatch(rf"[0-9a-f]{{{DIGITS[kind]}}}", digest)
        assert Path(file.name).suffix in {*OPENERS, ".parquet"}
        assert file.size > 0
        assert file.urls
        assert all(urlsplit(url).hostname for url in file.urls)
        # What is not encrypted may be changed on its way: only with a checksum, and after what is.
        assert file.urls[0].startswith(("https://", "hf://"))
        assert file.checksum or all(url.startswith("https://") for url in file.urls)
        if file.urls[0].startswith("hf://"):
            at = parse_hf_uri(file.urls[0])
            assert re.fullmatch("[0-9a-f]{40}", str(at.revision))
            assert at.path_in_repo
            assert kind == "sha256"


@pytest.mark.slow
def test_the_real_office_caltech10_is_the_one_that_is_known(shared_data: Path) -> None:
    assert tree_sha256(shared_data / "office_caltech_10") == RELEASES["office_caltech10"].tree
    images = list((shared_data / "office_caltech_10").rglob("*.jpg"))
    assert len(images) == RELEASES["office_caltech10"].images
    assert sum(path.stat().st_size for path in images) == RELEASES["office_caltech10"].unpacked


def test_the_real_test_files_of_mnist_are_the_ones_that_are_known(shared_data: Path) -> None:
    for file in RELEASES["mnist"].files[2:]:
        path = shared_data / "mnist" / file.name
        assert (f"sha256:{sha256(path)}", path.stat().st_size) == (file.checksum, file.size)
