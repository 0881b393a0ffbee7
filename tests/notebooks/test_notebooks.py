"""The notebooks run from their first cell to the last, and install what a fresh runtime lacks."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are made by whoever runs it"
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute()


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"quickstart", "your_own_method"}


def address() -> str:
    """Where the project is hosted, without which OWNER stands for the account."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project.get("urls", {}).get("Repository", "https://github.com/OWNER/fdgjax")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_badge_opens_the_notebook_of_this_repository(path: Path) -> None:
    text = nbformat.read(path, as_version=4).cells[0].source
    (opened,) = re.findall(r"\]\((https://colab[^\s)]*)\)$", text, re.MULTILINE)
    at = address().removeprefix("https://github.com/")
    assert opened == f"https://colab.research.google.com/github/{at}/blob/main/notebooks/{path.name}"
    assert ("OWNER" in text) == ("OWNER" in at)
    assert "![" not in text, "the site fetches nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("folder", "there", "installed"),
    [
        ("elsewhere", False, [f'install --quiet "fdgjax[report] @ git+{address()}"']),
        ("clone/notebooks", False, ['install --quiet "..[report]"']),
        ("clone/notebooks", True, []),
    ],
)
def test_a_fresh_runtime_installs_the_package(
    path: Path, folder: str, there: bool, installed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    if "clone" in folder:
        (tmp_path / "clone" / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path / folder)
    if not there:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    asked: list[str] = []
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shell: Any = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.register_magic_function(asked.append, "line", "pip")
    shell.run_cell(nbformat.read(path, as_version=4).cells[1].source, store_history=False).raise_error()
    assert asked == installed
