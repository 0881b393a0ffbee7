"""The examples of README and docs: which blocks there are, which commands are run, and why others are not."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import PAGES, text_of

TEXTS = [page for page in PAGES if page.suffix == ".md"]
DOWNLOAD, MINUTES = "needs a download", "minutes to hours: it was measured, or reproduces a paper"
PACKAGES = "needs packages that CI does not install; tests/loggers has stand-ins for them"
INSTALLS, CHOICE = (
    "installs packages; tests/test_wheel.py does it",
    "a pattern of commands, of which others are examples",
)
TABLES = "needs tables; tests/inference/test_tables.py trains on some and predicts others"
CLUSTER = "needs a cluster; tests/launch reads what it is given"
FLOWER = "needs a server and nodes; tests/deploy/test_page.py starts them, from the page's text"
PROCESSES = "is one of several processes; tests/run/test_several_processes.py starts them"
KEPT = "is of all kept runs; tests/launch runs it"
NOT_RUN = {
    r"python -m launch.(choosing|curves|every_method|hospitals|results)": KEPT,
    r"(sbatch|kubectl|python -m launch.submitit) ": CLUSTER,
    r"source |pip (install|wheel) |python -m venv ": INSTALLS,
    r".*--config=(\w+|configs/\w+\.py):(\w*pacs\w*|\w*office_caltech10|rotated_mnist|heart_disease)\b": DOWNLOAD,
    r"fdgjax train .*--config=\w+:(table|arrays)\b": TABLES,
    r"fdgjax predict HEARTS ": TABLES,
    r"fdgjax data \w": DOWNLOAD,
    r".*--config.writers=.*(wandb|mlflow)": PACKAGES,
    r"fdgjax (choose|reproduce|sweep|search|contributions) ": MINUTES,
    r"fdgjax train .*--distributed": PROCESSES,
    r"(taskset -c \d )?python -m benchmarks\.": MINUTES,
    r"python -m fdgjax.main --config=configs/METHOD": MINUTES,
    r"python -m fdgjax.main --config=configs/(uap|semifl).py .*--config.method": MINUTES,
    r"fdgjax (flower --(audit|node)|export server/)": FLOWER,
    r"flower-super|flwr |export FLWR_HOME=": FLOWER,
    r".*METHOD\[:PRESET\]": CHOICE,
    r"fdgjax probe .*--layer LAYER": CHOICE,
}
"""The commands that no test runs, by how they begin, and why; each is read by its own program instead."""


class Block(NamedTuple):
    """An example: the page and the lines of its text; `python`, `shell` or `text` (what a program prints)."""

    page: Path
    kind: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in their order, fenced or indented."""
    pattern = r"^```(\w*)\n([\s\S]*?)^```$|(?<=\n\n)((?:    .*\n|\n(?=    ))+)"
    for fence, fenced, indented in re.findall(pattern, text_of(page), re.MULTILINE):
        text = fenced or re.sub(r"^    ", "", indented, flags=re.MULTILINE)
        yield Block(page, fence or kind_of(text), text)


def kind_of(text: str) -> str:
    """What a block without a name is."""
    try:
        compile(text, "example", "exec")
    except SyntaxError:
        return "text" if text.startswith("memory: ") else "shell"
    return "python"


def lines(block: Block) -> Iterator[str]:
    """The commands of a block of the shell, each on one line and without its remark."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if command := " ".join(re.sub(r"(^|\s)#.*", "", line).split()):
            yield command


def reason(command: str) -> str:
    """Why a command is not run; '' for one that is."""
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), "")
