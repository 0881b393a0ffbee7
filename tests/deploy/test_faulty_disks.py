"""States that are lost, old or cannot be written, and full disks: one line, and the run goes on once that is mended."""

import dataclasses
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fdgjax.config import make_config, read_config
from fdgjax.deploy.kept import state_file
from fdgjax.deploy.request_handlers import serve
from fdgjax.deploy.server import ServerPrograms, make_server
from fdgjax.deploy.terms import agree, to_words
from fdgjax.deploy.wire import Reply, Request
from fdgjax.utils.errors import UserError
from tests.deploy.faulty import Faulty, is_simulated, one_line, run, server, trial
from tests.deploy.trial import Trial, node_settings
from tests.runs import perceptron

pytestmark = pytest.mark.slow

__all__ = ["perceptron", "server", "trial"]


# Folders of states


def test_a_node_whose_states_are_lost_says_so_and_goes_on_once_they_are_back(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    settings = node_settings(trial, tmp_path)
    file, copies = state_file(settings[1], trial.terms), list[bytes]()

    class Loses(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            if round_ == 1:
                copies.append(file.read_bytes())
                file.unlink()
            return replies

    with pytest.raises(UserError, match="client 1 has kept its state after no round, and the server has that of round"):
        run(server, Loses(settings), tmp_path)
    file.write_bytes(copies[0])
    assert "continuing after round 2 of 3" in run(server, Faulty(settings), tmp_path)
    assert is_simulated(trial, tmp_path)


def test_an_old_copy_of_a_nodes_states_is_refused_and_stays(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    settings = node_settings(trial, tmp_path)
    file, first = state_file(settings[1], trial.terms), list[bytes]()

    class Old(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            first.append(file.read_bytes())
            if round_ == 1:
                file.write_bytes(first[0])
            return replies

    with pytest.raises(UserError, match="after rounds 0 and 1, and the server has that of round 2; expected the same"):
        run(server, Old(settings), tmp_path)
    assert file.read_bytes() == first[0]


def test_a_method_without_state_at_nodes_goes_on_when_it_is_lost(trial: Trial, tmp_path: Path) -> None:
    fedavg = read_config(make_config("fedavg", "rotated_digits"))
    config = dataclasses.replace(
        trial.terms.config, method=fedavg.method, rounds=2, drop_last=trial.terms.config.drop_last
    )
    settings = node_settings(trial, tmp_path)
    server = make_server(agree(trial.terms._replace(config=config)), trial.server)

    class Lost(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            state_file(settings[0], server.agreed.terms).unlink()
            return replies

    assert any(line.startswith("round 2 of 2") for line in run(server, Lost(settings), tmp_path))


def test_states_that_cannot_be_written_are_one_line(trial: Trial, tmp_path: Path) -> None:
    own = node_settings(trial, tmp_path)[0]
    (tmp_path / "file").touch()
    reply = serve(own._replace(states=tmp_path / "file" / "states"), Request("join", -1, to_words(trial.terms), {}, {}))
    one_line(reply, "Not a directory", "a message that cannot be logged is not sent")


# Full disks


@contextmanager
def small_disk(largest: int) -> Iterator[None]:
    """No file of this process grows beyond `largest` bytes, as on a disk with no more room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_nodes_full_disk_is_one_line_and_its_state_stays(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    settings = node_settings(trial, tmp_path)
    file, before = state_file(settings[0], trial.terms), list[bytes]()

    class Full(Faulty):
        full = True

        def ask(self, request: Request, client: int) -> Reply:
            if self.full and client == 0 and request.action == "train" and request.facts["round"] == 2:
                before.append(file.read_bytes())
                # The log of messages is shorter than the state.
                with small_disk(len(before[0]) // 2):
                    return super().ask(request, client)
            return super().ask(request, client)

    transport = Full(settings)
    with pytest.raises(UserError, match=r"client 0: the system refuses .*\(File too large\).*free space") as raised:
        run(server, transport, tmp_path)
    assert "start the run again" in str(raised.value)
    assert file.read_bytes() == before[0]
    assert [one.name for one in file.parent.glob(".state*")] == []
    transport.full = False
    run(server, transport, tmp_path)
    assert is_simulated(trial, tmp_path)


@pytest.mark.parametrize("where", ["checkpoint", "rounds", "messages"])
def test_a_server_whose_disk_is_full_goes_on_from_its_checkpoint(
    where: str, trial: Trial, server: ServerPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = Faulty(node_settings(trial, tmp_path))

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device", str(arguments[0]))

    class Fills(Faulty):
        def fault(self, round_: int, replies: list[Reply]) -> list[Reply]:
            if round_ == 1 and where == "checkpoint":
                monkeypatch.setattr("fdgjax.run.records.checkpoints.write_checksums", full)
            if round_ == 1 and where == "rounds":
                monkeypatch.setattr("fdgjax.deploy.folder.write_lines", full)
            if round_ == 1 and where == "messages":
                monkeypatch.setattr("fdgjax.deploy.message_log.append", full)
            return replies

    with pytest.raises((OSError, UserError), match="No space left on device"):
        run(server, Fills(node_settings(trial, tmp_path)), tmp_path)
    monkeypatch.undo()
    done = {"checkpoint": 1, "rounds": 2, "messages": 1}[where]
    assert f"continuing after round {done} of 3" in run(server, transport, tmp_path)
    assert is_simulated(trial, tmp_path)
    records = [json.loads(line) for line in (tmp_path / "server" / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == [1, 2, 3]


def test_the_server_ends_with_one_line_for_a_full_disk(
    tmp_path: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    from fdgjax.deploy import server_app

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device", "rounds.jsonl")

    workdir = tmp_path / "server"
    settings = {"workdir": str(workdir), "terms": to_words(trial.terms), "samples": "", "deadline": 0.0, "least": 1}
    context: Any = SimpleNamespace(run_config={**settings, "authentication": False})
    nothing: Any = None
    monkeypatch.setattr(server_app, "remember_all_programs", lambda folder: None)
    monkeypatch.setattr(server_app, "run_rounds", full)
    with pytest.raises(server_app.RunFailedError):
        server_app.main(nothing, context)
    said = capsys.readouterr().out
    assert said == (
        "fdgjax: the system refuses with rounds.jsonl (No space left on device); expected a place that can be read or "
        "written and free space; mend that, and start the run again: it goes on from the last complete checkpoint\n"
    )
    assert json.loads((workdir / server_app.FAILED).read_text())["error"] in said
    monkeypatch.setattr(server_app, "run_rounds", lambda *arguments: None)
    server_app.main(nothing, context)
    assert not (workdir / server_app.FAILED).exists()
