"""The documentation as the tests read it."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*/README.md"))
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), *RESULTS, *sorted((ROOT / "notebooks").glob("*.ipynb"))]


def text_of(page: Path) -> str:
    """The text of a page; of a notebook, that of its cells."""
    if page.suffix != ".ipynb":
        return page.read_text()
    return "\n".join("".join(cell["source"]) for cell in json.loads(page.read_text())["cells"])


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of the second level."""
    _, *parts = re.split(r"^## (.*)$", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def commands(page: Path, program: str) -> list[str]:
    """The commands `PROGRAM ...` of a page's indented blocks, each on one line, without its remark."""
    text = text_of(page).replace("\\\n", " ")
    lines = re.findall(rf"^    {re.escape(program)}( .*)?$", text, re.MULTILINE)
    return [" ".join(re.sub(r"\s#.*", "", line).split()) for line in lines]
