"""The examples of README and docs run, as a reader would type them, on runs of one round; those that cannot are listed
with the reason (`tests.docs.examples.NOT_RUN`) and are read by the programs they name.

README's Python is run by `tests/test_readme.py`, that of docs/python.md by `tests/api/test_page.py`.
"""

import argparse
import contextlib
import glob
import importlib
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from fdgjax.cli.subcommands import COMMANDS, WITH, main
from fdgjax.config.command_line import parse
from fdgjax.config.help import asks_for_help
from fdgjax.config.register import REGISTRIES
from fdgjax.distributed import split_off
from fdgjax.methods import METHODS
from tests.docs.examples import NOT_RUN, TEXTS, Block, blocks, lines, reason
from tests.docs.pages import ROOT
from tests.runs import perceptron

__all__ = ["perceptron"]
RUN_ELSEWHERE = {"README.md", "python.md"}
"""Pages whose fenced Python other tests run."""
TRANSCRIPTS = {"tutorial.md"}
"""Pages on which a block of text is what the commands before it print."""
TINY = ("--config.rounds=1", "--config.local_epochs=1", "--config.model.name=perceptron", "--config.devices=1")
MODULES = {"fdgjax.main": "train"}
FOR_EXAMPLE = {
    "probe RUN": "probe PROBED",
    "RUNS...": "RUN",
    "RUNS": "RUN",
    "IMAGES...": "IMAGES/*.png",
    "--percent 10,20,30,40,50,60": "--percent 10",
    "--refuse-above 95%": "--refuse-above 50%",
    "EXPORT FOLDER": "PROGRAM IMAGES",
    " K": " 0",
    "seed=S": "seed=0",
    "=DOMAIN": "=b",
    "RUN ...": "RUN",
    "benchmarks/results/NAME": "EVIDENCE",
    "=configs/": f"={ROOT}/configs/",
    " benchmarks/results": f" {ROOT}/benchmarks/results",
}
"""What a reader puts for the words that stand for others."""


def every_command() -> Iterator[str]:
    for page in TEXTS:
        for block in blocks(page):
            if block.kind == "shell":
                yield from lines(block)


def commands_of(page: Path) -> list[str]:
    return [line for block in blocks(page) if block.kind == "shell" for line in lines(block) if not reason(line)]


# Read


def test_what_is_not_run_is_in_the_documentation() -> None:
    unused = [pattern for pattern in NOT_RUN if not any(re.match(pattern, line) for line in every_command())]
    assert unused == []


def test_what_is_run_is_a_command_of_ours() -> None:
    run = [line for line in every_command() if not reason(line)]
    assert len(set(run)) > 25
    assert [line for line in run if not re.match(r"fdgjax |python -m (fdgjax|launch)\b", line)] == []


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_every_block_has_a_kind_and_is_well_formed(page: Path) -> None:
    for block in blocks(page):
        assert block.kind in {"python", "shell", "text"}
        if block.kind == "python":
            compile(block.text, page.name, "exec")
        if block.kind == "shell":
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), block.text


class Parsed(BaseException):
    """The arguments were understood."""


LONG = (
    r"(?:taskset -c \d )?python -m benchmarks\.(?!memory)|"
    r"fdgjax (?:choose|reproduce|sweep|search|report|probe|flower(?! --node)) |python -m launch.submitit "
)


@pytest.mark.parametrize("line", sorted({line for line in every_command() if reason(line) and re.match(LONG, line)}))
def test_a_long_command_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the parser of its own program, which is stopped there; names of experiments are looked up by other tests."""
    read = argparse.ArgumentParser.parse_known_args

    def stop(self: argparse.ArgumentParser, *args: Any) -> None:
        _, rest = read(self, *args)
        assert rest == []
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
    words = shlex.split(re.sub(r"^taskset -c \d ", "", line))
    name = COMMANDS[words[1]].module if words[0] == "fdgjax" else words[2]
    package = importlib.util.find_spec(f"{name}.__main__") if (ROOT / name.replace(".", "/")).is_dir() else None
    program = importlib.import_module(package.name if package else name)
    # A benchmark's `main` takes its arguments alone, a subcommand's its name before them.
    argv = words[1:] if words[0] == "fdgjax" else words[3 if "benchmarks" in line else 2 :]
    with pytest.raises(Parsed):
        program.main(argv)


def test_a_command_of_several_processes_is_understood() -> None:
    found = [split_off(shlex.split(line)[1:]) for line in every_command() if "--distributed" in line]
    assert {place is not None and place.address is None for _, place in found} == {True, False}
    for words, _ in found:
        parse(words)


def test_the_memory_benchmark_is_an_experiment() -> None:
    memory = [line for line in every_command() if "benchmarks.memory" in line]
    assert memory
    for line in memory:
        parse(["fdgjax.main", *(word for word in shlex.split(line) if word.startswith("--config"))])


# Run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> Iterator[Path]:
    """A folder to type in: images of three domains, two of each patient and class, who are at two hospitals, a run that
    has finished, and one without labels."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    for domain in "abc":
        for kind in ("cat", "dog"):
            (folder / "DATA" / domain / kind).mkdir(parents=True)
            for number in range(12):
                pixels = rng.integers(0, 256, (8, 8, 3), np.uint8)
                name = f"patient{number // 2}_hospital{number // 6}_{number}.png"
                Image.fromarray(pixels).save(folder / "DATA" / domain / kind / name)
    (folder / "IMAGES").symlink_to(folder / "DATA" / "a" / "cat")
    strict = {name: getattr(jax.config, name) for name in ("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")}
    typed.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv(WITH, "")
        # The tests' process has its devices already.
        patch.setattr("fdgjax.cli.train.prepare_cpu", lambda config, path: None)
        try:
            typed("fdgjax train --config=lgfedavg:folder --config.data.dir=DATA --config.data.target=b --workdir=RUN")
            yield folder
        finally:
            for name, value in strict.items():
                jax.config.update(name, value)
            for entries in REGISTRIES.values():
                for name in set(entries) - entries.own - {"perceptron"}:
                    del entries[name]


def words_of(line: str, words: Mapping[str, str] = FOR_EXAMPLE) -> list[str]:
    """A command's words, with files put for patterns of files."""
    for word, instead in words.items():
        line = line.replace(word, instead)
    return [found for word in shlex.split(line) for found in (sorted(glob.glob(word)) if "*" in word else [word])]


@cache
def typed(line: str) -> str:
    """Runs a command in this process, a training for one round, and returns what it prints; once, if several pages have
    it."""
    shutil.rmtree("DIR", ignore_errors=True)
    words = words_of(line)
    argv = words[1:] if words[0] == "fdgjax" else [MODULES.get(words[2], words[2]), *words[3:]]
    if {"train", "demo"} & set(argv) and not any(map(asks_for_help, argv)):
        tiny = [*TINY, *(["--config.pseudo_labels.epochs=1"] if "labelled_server" in line else [])]
        tiny += ["--config.model.pretrained=", "--config.model.frozen=0"] if ":pretrained_folder" in line else []
        argv += [word for word in tiny if word.partition("=")[0] not in line or "rounds" in word]
    if "report" in argv and "--no-states" not in argv:
        argv.append("--no-states")
    if argv[0] == "launch.evidence":
        assert importlib.import_module(argv[0]).main(argv) in (0, None)
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["fdgjax", *argv]) == 0, line
    return printed.getvalue()


def run_block(block: Block, names: dict[str, Any]) -> str:
    """What the block's commands print."""
    printed = ""
    if block.kind == "shell":
        printed = "".join(typed(line) for line in lines(block) if not reason(line))
    if block.kind == "python" and not reason(block.text):  # the command stands in a program's first line
        exec(compile(block.text.replace("rounds=40", "rounds=1, model='perceptron'"), block.page.name, "exec"), names)
    return printed


def masked(text: str) -> set[str]:
    """The lines of an output, without its numbers and the widths of its columns."""
    return {" ".join(re.sub(r"[\d,.]*\d", "*", line).split()) for line in text.splitlines()} - {"..."}


@pytest.mark.slow
@pytest.mark.parametrize("page", [it for it in TEXTS if it.name not in RUN_ELSEWHERE], ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_their_order(page: Path, world: Path) -> None:
    names, printed = prepared(page, world), ""
    for block in blocks(page):
        if block.kind == "text" and page.name in TRANSCRIPTS:
            assert masked(block.text) - masked(printed) == set()
        printed = run_block(block, names)


def prepared(page: Path, world: Path) -> dict[str, Any]:
    """What a page's text says is there before its example."""
    names: dict[str, Any] = {"__name__": "page", "jax": jax}
    if page.stem == "running":
        typed("fdgjax export RUN --out PROGRAM")
        shutil.copy("PROGRAM/program.bin", ".")
        names["images"] = np.zeros((2, 32, 32, 3), np.uint8)
    if page.stem == "reports":
        typed("fdgjax train --config=fedsimclr --config.data.target=r45 --workdir=PROBED")
    return names


@pytest.mark.slow
def test_the_commands_of_readme_run(world: Path) -> None:
    for line in commands_of(ROOT / "README.md"):
        typed(line)
    assert (world / "predictions.csv").read_text().count("\n") == 13


@pytest.mark.slow
def test_a_method_in_a_file_of_its_own_runs(world: Path) -> None:
    code = next(it.text for it in blocks(ROOT / "docs" / "python.md") if "my_median" in it.text)
    (world / "my_median.py").write_text("import fdgjax\n" + code.partition("result =")[0])
    config = next(it.text for it in blocks(ROOT / "docs" / "python.md") if "# my_config.py" in it.text)
    for line in commands_of(ROOT / "docs" / "python.md"):
        typed(line.replace("RUN", "MEDIAN"))
    del METHODS["my_median"]
    names: dict[str, Any] = {"__name__": "my_config"}
    exec(compile(config, "my_config.py", "exec"), names)
    assert names["get_config"]().method.name == "my_median"


def test_the_words_of_examples_are_used() -> None:
    text: Sequence[str] = [line for line in every_command() if not reason(line)]
    assert [word for word in FOR_EXAMPLE if not any(word in line for line in text)] == []
