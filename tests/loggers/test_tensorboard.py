"""TensorBoard's events hold every number, and a disk that refuses them does not stop a run."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from fdgjax.loggers import Log, RunInfo, loggers_of, open_loggers


def events(folder: Path) -> Iterator[Event]:
    """All events of a folder, by the format of a record: length, its checksum, content, its checksum."""
    for file in sorted(folder.glob("events.*")):
        content, place = file.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack("Q", content[place : place + 8])
            yield Event.FromString(content[place + 12 : place + 12 + length])
            place += length + 16


def opened(folder: Path, records: Sequence[Mapping[str, Any]], warn: Callable[[str], None]) -> Log:
    return open_loggers(loggers_of("tensorboard"), RunInfo(folder, {}, len(records)), records, warn)


def test_every_number_is_there_under_its_name_at_its_round(tmp_path: Path) -> None:
    before: list[dict[str, Any]] = [{"round": 1, "loss": 1.5}, {"round": 2}]
    log = opened(tmp_path, before, pytest.fail)
    log.write({"round": 3, "loss": 0.5, "weights": [0.25, 0.75], "domains": {"<65 ä": 1, ">65 ä": 2}, "name": "x"})
    log.close()
    found = list(events(tmp_path / "tensorboard"))
    assert (found[1].step, found[1].session_log.status) == (1, SessionLog.START)
    values = {(value.tag, event.step): value.simple_value for event in found for value in event.summary.value}
    assert values == {
        ("round", 1): 1,
        ("loss", 1): 1.5,
        ("round", 2): 2,
        ("round", 3): 3,
        ("loss", 3): 0.5,
        ("weights/0", 3): 0.25,
        ("weights/1", 3): 0.75,
        ("domains/<65 ä", 3): 1,
        ("domains/>65 ä", 3): 2,
    }


def shown(folder: Path) -> list[int]:
    """The steps that TensorBoard shows: it leaves out what it read before from the step of a START on."""
    kept: list[int] = []
    for event in events(folder / "tensorboard"):
        if event.session_log.status == SessionLog.START:
            kept = [step for step in kept if step < event.step]
        kept += [event.step] * len(event.summary.value)
    return kept


def test_rounds_that_a_killed_run_left_are_purged(tmp_path: Path) -> None:
    for done in (0, 2):
        log = opened(tmp_path, [{"round": i} for i in range(1, done + 1)], pytest.fail)
        for round_ in range(done + 1, 5):
            log.write({"round": round_})
    assert shown(tmp_path) == [1, 2, 3, 4]


def test_rounds_that_were_trained_without_it_are_written_later(tmp_path: Path) -> None:
    opened(tmp_path, [], pytest.fail).write({"round": 1})
    opened(tmp_path, [{"round": i} for i in range(1, 4)], pytest.fail).write({"round": 4})  # two without TensorBoard
    assert shown(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("failing", ["write", "flush"])
def test_a_full_disk_is_said_once_and_the_run_goes_on(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    said: list[str] = []
    log = opened(tmp_path, [], said.append)
    log.write({"round": 1, "loss": 0.5})
    monkeypatch.setattr(f"tensorboardX.record_writer.RecordWriter.{failing}", full)
    for round_ in range(2, 200):
        log.write({"round": round_, "loss": 0.5})
    log.close()
    assert len(said) == 1
    assert "goes on without it" in said[0]


def test_a_place_that_is_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file")
    said: list[str] = []
    log = opened(tmp_path, [], said.append)
    log.write({"round": 1})
    log.close()
    assert len(said) == 1
