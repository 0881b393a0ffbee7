"""The documentation's site, which Sphinx builds from the repository's own pages: `make docs`. Nothing is fetched."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"

project = "fdgjax"
extensions = [
    "myst_nb",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
include_patterns = ["*.md", "docs/*.md", "docs/api/*", "notebooks/*.ipynb", "benchmarks/results/*/README.md"]
exclude_patterns = ["site", "runs", "build", ".*", "tests", "fdgjax", "docs/api/modules.rst"]
root_doc = "README"
default_role = "code"
highlight_language = "text"
myst_heading_anchors = 4
nb_execution_mode = "off"

html_title = "fdgjax"
html_theme_options = {"max_navbar_depth": 2}  # packages, whose pages list their modules
html_theme = "sphinx_book_theme"
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "index.html"}
html_search_scorer = str(SITE / "scorer.js")
templates_path = ["site"]

PRIVATE = ("cli", "deploy", "loggers", "main.py", "__main__.py", "report", "run", "sweeps", "utils")
apidoc_modules = [
    {
        "path": "../fdgjax",
        "destination": "docs/api",
        "exclude_patterns": [f"../fdgjax/{name}" for name in PRIVATE],
        "automodule_options": ["members", "show-inheritance"],
        "separate_modules": True,
        "module_first": True,
    }
]
autodoc_default_options = {"ignore-module-all": True}
autodoc_member_order = "bysource"
autodoc_mock_imports = ["flwr", "wandb", "mlflow", "torch", "optuna", "submitit"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_ivar = True
toc_object_entries = False
suppress_warnings = ["ref.python"]  # fields of one name in several classes

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields", "References", "Example", "Examples", "Note")
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:|#)([^)\s#]+)\)")
"""A Markdown link to a file or folder of the repository: its text and its address."""

CODE = re.compile(r"`([^`]*)`(\w?)|([|*]|_(?!\w))")
"""Code in a docstring, or a character that reStructuredText would take for markup."""


def escaped(found: re.Match[str]) -> str:
    """The same in reStructuredText, where code and a letter that follows it are kept apart."""
    code, letter, character = found.groups()
    return f"\\{character}" if character else f"``{code}``" + (f"\\ {letter}" if letter else "")


def on_source(app: "Sphinx", page: str, content: list[str]) -> None:
    """The navigation is attached to README, and links to modules lead to their pages."""
    if page == root_doc:
        content[0] += (SITE / "toctree.md").read_text()

    def address(found: re.Match[str]) -> str:
        text, path = found.groups()
        there = PurePosixPath(normpath(f"{PurePosixPath(page).parent}/{path}"))
        reference = f"docs/api/{'.'.join(there.with_suffix('').parts)}.rst"
        if has_page(reference):
            return f"[{text}](/{reference})"
        return text if (ROOT / there).is_dir() else found.group()  # a folder has no page

    content[0] = LINK.sub(address, content[0])


def has_page(reference: str) -> bool:
    """Whether the reference has the page; it is written before the pages are read."""
    return (ROOT / reference).is_file()


def on_docstring(app: "Sphinx", what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings, written for terminals, as reStructuredText."""
    fields = list(inspect.get_annotations(obj)) if inspect.isclass(obj) else []
    blocks = "\n".join(lines).strip("\n").split("\n\n")
    lines[:] = "\n\n".join(as_rst(block, fields) for block in blocks).split("\n")


def as_rst(block: str, fields: Sequence[str]) -> str:
    """A paragraph of a docstring: an equation is literal, and a class's entries `field: meaning.` are a list."""
    if block.startswith("    "):
        return f"::\n\n{block}"
    if block.partition(":")[0] in SECTIONS:
        return CODE.sub(escaped, block)
    name = "|".join(sorted(map(re.escape, fields), key=len, reverse=True)) or r"(?!)"
    before, *found = re.split(rf"(?:^|(?<=[.;)]\s))\s*((?:{name})(?:, (?:{name}))*): ", block, flags=re.MULTILINE)
    before = CODE.sub(escaped, before.strip("\n"))
    before = re.sub(r"(?<=[^-\s])\n(?=- )", "\n\n", before, count=0 if before.startswith("- ") else 1)
    meanings = (CODE.sub(escaped, " ".join(text.split())) for text in found[1::2])
    items = (f"- ``{names}``: {meaning}" for names, meaning in zip(found[::2], meanings, strict=True))
    return "\n".join([before, "", *items] if found else [before])


def setup(app: "Sphinx") -> None:
    """Connects the two."""
    app.connect("source-read", on_source)
    app.connect("autodoc-process-docstring", on_docstring, priority=400)  # before napoleon, whose priority is 500
