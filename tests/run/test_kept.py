"""A kept program is the program it was, bit for bit; nothing stands in for another, and damage costs a compilation."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import fdgjax
from fdgjax.config import make_config, read_config
from fdgjax.models import MODELS, Backbone
from fdgjax.run import kept
from fdgjax.run.kept import Shelf, compiled, is_private, remove_oldest, shelf_of
from fdgjax.run.origin import made_of, package_digest
from fdgjax.train import remember_compilations
from tests.runs import ROOT, Perceptron

METHODS_APART = ("fdse", "feddg", "fedema", "fedgala", "hfedf", "semifl", "uap")
"""Of whose programs no two have the same special operations."""

NEVER: Any = None
"""A program that cannot be compiled, so that one that is returned was kept."""


@pytest.fixture(autouse=True)
def unheard() -> Iterator[None]:
    """JAX's own cache of the tests neither has these programs nor gets them."""
    least = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    assert is_private(tmp_path / "programs")
    return Shelf(tmp_path / "programs", "origin", 1)


def halved(state: dict[str, jax.Array], data: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    return {"w": state["w"] / 3 + data.sum()}, state["w"].sum()


def arguments(size: int = 5, dtype: Any = np.float32) -> tuple[dict[str, jax.Array], jax.Array]:
    return {"w": jax.device_put(np.arange(size, dtype=dtype))}, jax.device_put(np.ones(3, np.float32))


def put(shelf: Shelf) -> Path:
    """The file of the one program on the shelf."""
    compiled("round", jax.jit(halved, donate_argnums=0), arguments(), shelf)
    (file,) = shelf.folder.iterdir()
    return file


def test_a_kept_program_is_the_one_that_was_compiled(shelf: Shelf) -> None:
    made = compiled("round", jax.jit(halved, donate_argnums=0), arguments(), shelf)
    found = compiled("round", NEVER, arguments(), shelf)
    donated = arguments()
    (state, total), (state_found, total_found) = made(*arguments()), found(*donated)
    assert np.asarray(state["w"]).tobytes() == np.asarray(state_found["w"]).tobytes()
    assert total == total_found
    assert donated[0]["w"].is_deleted()
    assert found.memory_analysis().alias_size_in_bytes == made.memory_analysis().alias_size_in_bytes > 0
    assert {path.stat().st_mode & 0o077 for path in (shelf.folder, *shelf.folder.iterdir())} <= {0, 0o044}


def test_another_name_origin_shape_type_or_tree_is_another_program(shelf: Shelf) -> None:
    put(shelf)
    (state, data), whole = arguments(), compiled("round", NEVER, arguments(), shelf)
    assert whole is not None
    for name, inputs, other in (
        ("evaluation", (state, data), shelf),
        ("round", (state, data), shelf._replace(origin="another")),
        ("round", arguments(6), shelf),
        ("round", arguments(5, np.int32), shelf),
        ("round", ({"v": state["w"]}, data), shelf),
        ("round", (jax.device_put(state, jax.devices()[1]), data), shelf),
    ):
        with pytest.raises(AttributeError, match="lower"):
            compiled(name, NEVER, inputs, other)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "renamed", "no program"])
def test_damage_costs_one_line_and_a_compilation(damage: str, shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    file = put(shelf)
    whole = file.read_bytes()
    at = len(whole) // 2
    if damage == "renamed":
        other = shelf._replace(origin="another")
        compiled("round", jax.jit(halved, donate_argnums=0), arguments(), other)
        (stranger,) = set(shelf.folder.iterdir()) - {file}
        stranger.replace(file)
    elif damage == "no program":
        digest = bytes.fromhex(file.stem.rpartition("-")[2])
        file.write_bytes(kept.hashlib.sha256(digest + b"nothing").digest() + b"nothing")
    else:
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        file.write_bytes({"flipped": flipped, "cut": whole[:at], "empty": b""}[damage])
    again = compiled("round", jax.jit(halved, donate_argnums=0), arguments(), shelf)
    assert again(*arguments())[1] == 10
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fdgjax"]
    assert "damaged" in line
    assert "\n" not in line
    assert compiled("round", NEVER, arguments(), shelf)(*arguments())[1] == 10


def test_a_program_that_jax_itself_loaded_is_not_kept(shelf: Shelf) -> None:
    class Loaded:
        def lower(self, *_: Any) -> "Loaded":
            return self

        def compile(self, options: None) -> "Loaded":
            jax.monitoring.record_event("/jax/compilation_cache/cache_hits")
            return self

    compiled("round", Loaded(), arguments(), shelf)
    assert not list(shelf.folder.iterdir())
    put(shelf)


def test_a_program_that_calls_the_host_is_compiled_and_not_kept(shelf: Shelf) -> None:
    like = jax.ShapeDtypeStruct((3,), np.float32)
    calls = jax.jit(lambda _, data: jax.pure_callback(lambda x: 2 * np.asarray(x), like, data))
    assert np.asarray(compiled("round", calls, arguments(), shelf)(*arguments())).tolist() == [2, 2, 2]
    assert not list(shelf.folder.iterdir())


def test_an_open_folder_and_a_full_disk_keep_nothing(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.folder.chmod(0o755)
    assert not is_private(shelf.folder)
    shelf.folder.chmod(0o700)
    assert is_private(shelf.folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        assert not is_private(shelf.folder)
    monkeypatch.setattr("fdgjax.run.kept.write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    compiled("round", jax.jit(halved), arguments(), shelf)
    assert [record.getMessage().count("\n") for record in caplog.records if record.name == "fdgjax"] == [0, 0, 0]


def test_the_longest_unused_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for used, name in enumerate(["a.program", "b.program", ".c.program.123", "d.program", "e.program"]):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (used, used))
    monkeypatch.setattr(kept, "MOST_FILES", 3)
    remove_oldest(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"d.program", "e.program"}
    monkeypatch.setattr(kept, "MOST_BYTES", 15)
    remove_oldest(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"e.program"}


def config(**changes: Any) -> Any:
    chosen = make_config("fedavg", "rotated_digits")
    chosen.update(changes)
    return read_config(chosen)


def test_all_that_a_program_is_made_from_is_in_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = made_of(config(), {})
    assert made_of(config(), {}) == origin
    assert made_of(config(seed=7, eval_every=3, checkpoint_every=2, data={"cache_dir": "elsewhere"}), {}) == origin
    changes = ({"rounds": 7}, {"batch_size": 7}, {"method": {"client_learning_rate": 0.5}}, {"model": {"width": 2.0}})
    others = [made_of(config(), {"classes": 3}), *(made_of(config(**change), {}) for change in changes)]
    for place, value in (("os.environ", {"XLA_FLAGS": "--xla_x=1"}), ("fdgjax.run.origin.LIBRARIES", ("jax",))):
        with monkeypatch.context() as patch:
            patch.setattr(place, value)
            others.append(made_of(config(), {}))
    for name in ("processor", "package_digest"):
        with monkeypatch.context() as patch:
            patch.setattr(f"fdgjax.run.origin.{name}", lambda: "another")
            others.append(made_of(config(), {}))
    assert len({origin, *others}) == 1 + len(others)
    assert all(others)


def test_a_change_of_the_package_is_another_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, folder = package_digest(), tmp_path / "fdgjax"
    shutil.copytree(Path(fdgjax.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fdgjax, "__file__", str(folder / "__init__.py"))
    assert package_digest() == before
    file = folder / "methods" / "fedavg.py"
    file.write_text(file.read_text() + "\n")
    assert package_digest() != before


def test_a_network_from_outside_the_package_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "perceptron", Backbone(Perceptron, "of the tests"))
    assert made_of(config(model={"name": "perceptron"}), {}) == ""


def test_without_a_folder_there_is_no_shelf() -> None:
    assert shelf_of(NEVER, None) is None


@pytest.mark.parametrize("said", ["", "of-the-user"])
def test_jaxs_own_cache_is_where_the_user_said_or_beside_the_data(said: str, tmp_path: Path) -> None:
    key, config = "jax_compilation_cache_dir", make_config("fedavg", "rotated_digits")
    config.data.cache_dir, before = str(tmp_path), jax.config.values[key]
    try:
        jax.config.update(key, said)
        remember_compilations(read_config(config))
        assert jax.config.values[key] == (said or str(tmp_path / "compiled"))
    finally:
        jax.config.update(key, before)


@pytest.mark.slow
def test_another_process_runs_kept_programs_of_methods_with_linear_algebra_and_loops_of_their_own(
    tmp_path: Path,
) -> None:
    """A program that calls LAPACK ends a process that never looked it up."""
    assert is_private(tmp_path / "programs")
    command = [sys.executable, "-m", "tests.run.kept_programs", str(tmp_path / "programs"), *METHODS_APART]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False) for _ in ("makes", "loads")
    )
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert second.stdout == first.stdout.replace(" made ", " loaded ")
    assert second.stdout.count(" loaded ") == len(METHODS_APART)
