"""The programs of a run: its record says at which commit it began, and a run that goes on at another says so."""

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

from fdgjax.aggregation.mean import mean
from fdgjax.config import Config
from fdgjax.config.register import register_method
from fdgjax.methods import METHODS, Entry, FedAvg, fedavg
from fdgjax.run.records import note_programs, open_workdir, read_config_file
from fdgjax.run.records.versions import commit, library_versions, versions
from fdgjax.utils.checksums import read_checked_json, write_checked_json

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="asks git for the commit of a checkout")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a checkout of one commit, beside another file."""
    package = tmp_path / "checkout" / "package"
    package.mkdir(parents=True)
    for file in (package / "__init__.py", package.parent / "README"):
        file.write_text("before")
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "--quiet", "--message", "all")
    return package


@needs_git
@pytest.mark.parametrize(
    ("file", "mark"), [("", ""), ("README", ""), ("package/__init__.py", "-dirty"), ("package/new.py", "-dirty")]
)
def test_a_commit_is_marked_where_the_package_differs_from_it(package: Path, file: str, mark: str) -> None:
    if file:
        (package.parent / file).write_text("after")
    full = git(package.parent, "rev-parse", "HEAD")
    found = commit(package)
    assert found.endswith(mark)
    assert len(found) == 10 + len(mark)
    assert full.startswith(found.removesuffix("-dirty"))


@needs_git
def test_a_package_that_was_installed_below_a_checkout_has_no_commit_of_it(package: Path) -> None:
    installed = package.parent / "venv" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit(installed) == ""


@needs_git
def test_without_git_there_is_no_commit(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(package) == ""


def test_a_run_says_with_what_it_began_and_that_it_goes_on_with_another(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert note_programs(path) == ""
    workdir = open_workdir(path, Config())
    content = read_config_file(workdir)
    assert (content["versions"], content["commit"]) == (versions(), commit())
    assert note_programs(path) == ""
    before = content["versions"] | {"jax": "0.1.2", "python": "3.9"}
    write_checked_json(workdir.config, read_checked_json(workdir.config) | {"versions": before})
    here = library_versions()["jax"]
    assert note_programs(path) == f"the run began with jax 0.1.2 and goes on with jax {here}: its numbers may change"


def half(updates: Any, weights: Any = None) -> Any:
    return jax.tree.map(lambda leaf: 0.5 * leaf.mean(axis=0), updates), {}


def test_a_run_says_that_the_program_of_a_users_method_has_changed(tmp_path: Path) -> None:
    """Also that of a function which it uses; the same program in another place is the same."""

    def made(rule: Any, name: str = "halved") -> Config:
        entry = Entry(name, FedAvg, partial(fedavg, rule=rule), "half of the mean")
        return Config(method=FedAvg(name=register_method(entry, "here.py")))

    path = tmp_path / "run"
    try:
        open_workdir(path, made(half))
        assert note_programs(path) == ""
        made(half)
        assert note_programs(path) == ""
        made(mean)
        words = r"the run began with method 'halved' as (\w{8}) and goes on with method 'halved' as (\w{8}): its .*"
        found = re.fullmatch(words, note_programs(path))
        assert found
        assert found[1] != found[2]
    finally:
        del METHODS["halved"]


def test_a_run_of_before_commits_were_recorded_says_that_it_goes_on_with_another_version(tmp_path: Path) -> None:
    path = tmp_path / "run"
    workdir = open_workdir(path, Config())
    content = read_checked_json(workdir.config)
    del content["commit"]
    write_checked_json(workdir.config, content)
    words = "the run began with an earlier fdgjax{} and goes on with this one{}: its numbers may change"
    assert note_programs(path) == words.format("", "")
    write_checked_json(workdir.config, content | {"versions": content["versions"] | {"jax": "0.1.2"}})
    assert note_programs(path) == words.format(", jax 0.1.2", f", jax {library_versions()['jax']}")
