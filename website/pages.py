"""The site's pages that are made of other files: README, notebooks, methods, modules and sources."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from website.links import ROOT, linked, slug

TEXTS = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages of the repository's root, and where they are on the site."""
RESULTS = "benchmarks/results/"
"""A folder for each experiment: its curves, and in README.md what was run and found."""
PACKAGES = {
    "fdgjax": "what `import fdgjax` gives",
    "api": "experiments and results",
    "contract": "what a method is",
    "experiments": "data, model, method and evaluation put together",
    "aggregation": "rules that combine the clients' updates",
    "objectives": "losses and regularisers",
    "data.augmentations": "random views of images",
    "methods.parts": "what several methods are made of",
    "models": "networks, units and heads",
    "nn": "layers that are fast with a client axis",
    "data": "data sets, splits, federation, protocols",
    "config": "schema, presets, command line",
    "engine": "the compiled round",
    "evaluation": "accuracy, calibration, probes",
    "inference": "a trained run: its models, predictions, export",
    "utils.registry": "choices by name",
    "utils.variables": "trees of variables",
    "utils.errors": "mistakes of the user",
}
"""The public modules of fdgjax, in the order of the reference, and what is there."""
FENCE = "`" * 6
BADGE = re.compile(r"^\[!\[Open in Colab\].*\n\(OWNER.*\n\n?", re.MULTILINE)


def place(path: str) -> str:
    """Where a file or folder of the repository is on the site."""
    if path in TEXTS:
        return TEXTS[path]
    if path.startswith("notebooks/"):
        return str(PurePosixPath(path).with_suffix(".md"))
    if path.startswith(RESULTS) and path.endswith("/README.md"):
        return f"results/{PurePosixPath(path).parent.name}.md"
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    module = ".".join(PurePosixPath(path).with_suffix("").parts)
    if module == "fdgjax.methods":
        return "methods.md"
    if path.startswith("fdgjax/methods/") and (setting := settings().get(module.rpartition(".")[2])):
        return f"methods/{slug(setting)}.md#{module}"
    if path.startswith("fdgjax/") and (package := package_of(module)):
        return f"reference/{package}.md#{module}"
    return f"source/{path}.md"


def package_of(module: str) -> str:
    """The entry of `PACKAGES` that a module is in; '' for none."""
    inside = module.removeprefix("fdgjax.")
    return next((package for package in PACKAGES if f"{inside}.".startswith(f"{package}.")), "")


def settings() -> dict[str, str]:
    """The setting of each method: the section of docs/methods.md with its row."""
    _, *parts = re.split(r"^## (.*)$", (ROOT / "docs" / "methods.md").read_text(), flags=re.MULTILINE)
    return {
        name: title
        for title, text in zip(parts[::2], parts[1::2], strict=True)
        for name in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    }


def made() -> Mapping[str, tuple[str, str]]:
    """The pages that are no file of docs: by their place on the site, what they are made from and their text."""
    pages = {there: (path, (ROOT / path).read_text()) for path, there in TEXTS.items()}
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        path = f"notebooks/{notebook.name}"
        pages[place(path)] = (path, notebook_page(notebook))
    for diary in sorted(ROOT.glob(f"{RESULTS}*/README.md")):
        path = diary.relative_to(ROOT).as_posix()
        pages[place(path)] = (path, diary.read_text())
    for title in dict.fromkeys(settings().values()):
        pages[f"methods/{slug(title)}.md"] = ("docs/methods.md", setting_page(title))
    for package in PACKAGES:
        pages[f"reference/{package}.md"] = ("", package_page(package))
    texts = [*pages.values(), *((f"docs/{path.name}", path.read_text()) for path in (ROOT / "docs").glob("*.md"))]
    for path in sorted({path for source, text in texts for path in linked(text, source)}):
        if (there := place(path)).startswith("source/"):
            pages[there] = (path, source_page(path))
    return pages


def notebook_page(path: Path) -> str:
    """A notebook's cells: text without the badge, whose image would be fetched, and code in blocks."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join(
        BADGE.sub("", text) if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell in cells
        for text in ["".join(cell["source"])]
    )


def setting_page(title: str) -> str:
    """The methods of a setting, each by its docstring, with its hyperparameters and functions."""
    text = (ROOT / "docs" / "methods.md").read_text()
    (section,) = re.findall(rf"^## {re.escape(title)}\n\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    blocks = (f"::: fdgjax.methods.{name}" for name, setting in settings().items() if setting == title)
    return "\n\n".join([f"# {title}", section, *blocks])


def package_page(package: str) -> str:
    """The modules of a package, each by its docstrings."""
    about = PACKAGES[package]
    return "\n\n".join([f"# {package}", f"{about[0].upper()}{about[1:]}.", *(f"::: {it}" for it in modules(package))])


def modules(package: str) -> Iterator[str]:
    """A package's module, and those inside it."""
    if package == "fdgjax":
        yield package
        return
    inside = ROOT.joinpath("fdgjax", *package.split("."))
    yield f"fdgjax.{package}"
    for path in sorted(inside.glob("*.py")) if inside.is_dir() else []:
        if path.stem != "__init__":
            yield f"fdgjax.{package}.{path.stem}"


def source_page(path: str) -> str:
    """A file as it stands, or the names of a folder's files."""
    there = ROOT / path
    if there.is_dir():
        names = (file.relative_to(there).as_posix() for file in sorted(there.rglob("*")) if file.is_file())
        return "\n".join([f"# {path}", "", *(f"- `{name}`" for name in names if "__pycache__" not in name)])
    return f"# {path}\n\n{FENCE}{there.suffix.removeprefix('.')}\n{there.read_text()}\n{FENCE}\n"
