"""The generated images of `benchmarks.streams`, and its table; no other framework is needed."""

from pathlib import Path

import pytest
from PIL import Image

from benchmarks import streams
from benchmarks.models import CLASSES


def test_images_are_made_once_in_folders_of_domains_and_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "DIFFERENT", 3)
    folder = streams.jpegs(tmp_path / "100", 100)
    files = sorted(folder.glob("*/*/*.jpg"))
    assert len(files) == 100
    assert len({file.parent for file in files}) == streams.DOMAINS * CLASSES
    assert len({file.read_bytes() for file in files}) == 3
    with Image.open(files[-1]) as image:
        assert image.size == (streams.PIXELS, streams.PIXELS)
    files[0].unlink()
    assert streams.jpegs(folder, 100) == folder
    assert not files[0].exists()


def test_a_round_of_the_run_is_as_long_as_the_others(tmp_path: Path) -> None:
    few, many = (streams.arguments(tmp_path, tmp_path / "cache", images, 2, True) for images in (2000, 100_000))
    differ = {a for a, b in zip(few, many, strict=True) if a != b}
    assert differ == {f"--config.data.clients={streams.number_of_clients(2000)}"}
    assert streams.number_of_clients(2000) >= streams.PARTICIPANTS
    left = int(streams.PER_CLIENT * (1 - 0.05))
    assert left // streams.BATCH == streams.STEPS


def test_the_table_has_dashes_for_what_was_not_measured() -> None:
    lines = streams.table(
        [
            {
                "contender": "streamed",
                "images": 1000,
                "prepare_seconds": 2.04,
                "start_seconds": 3.0,
                "peak_bytes": 2**21,
            },
            {"contender": "flgo", "images": 1000, "failed": "no memory"},
        ]
    ).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:4]] == [
        ["1,000", "streamed", "2.0", "3.0", "-", "2"],
        ["1,000", "flgo", "-", "-", "-", "-"],
    ]
