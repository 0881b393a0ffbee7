"""The command `fdgjax` and its subcommands.

    fdgjax NAME ARGUMENTS...
    fdgjax NAME --help
    fdgjax --with FILE NAME ARGUMENTS...

With --with, a Python file (or a module) that registers user-defined methods, models or data sets is run first. A
subcommand's libraries are loaded only when it is called.
"""

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from fdgjax.utils.command import Main, command
from fdgjax.utils.errors import UserError
from fdgjax.utils.huge_pages import begin_with_huge_pages
from fdgjax.utils.registry import lookup


class Command(NamedTuple):
    """A subcommand: the module whose `main(argv)` it calls, and a one-line summary."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "demo": Command("fdgjax.cli.demo", "trains hFedF on rotated digits: nothing to fetch or to choose"),
    "data": Command("fdgjax.cli.data", "lists data sets and fetches them: NAME --dir DATA"),
    "train": Command("fdgjax.cli.train", "trains and evaluates one experiment: --config=METHOD[:PRESET]"),
    "probe": Command("fdgjax.cli.probe", "linear probes of runs that learned without labels"),
    "shift": Command("fdgjax.cli.shift", "how far apart a run's domains are for its model"),
    "apart": Command("fdgjax.cli.client_distance", "how far apart a run's client models are"),
    "predict": Command("fdgjax.cli.predict", "classes and probabilities of new samples, by a run or an export"),
    "evaluate": Command("fdgjax.cli.evaluate", "figures and the confusion matrix on labelled samples"),
    "export": Command("fdgjax.cli.export", "a trained run as safetensors, a StableHLO program and a model card"),
    "runs": Command("fdgjax.cli.runs", "lists the runs in a folder, and the keys that differ"),
    "report": Command("fdgjax.cli.report", "a page, tables and figures of runs"),
    "sweep": Command("fdgjax.cli.sweep", "many runs by one command, shared and resumed"),
    "contributions": Command("fdgjax.cli.contributions", "what each client contributes: Shapley values, coalitions"),
    "reproduce": Command("fdgjax.cli.reproduce", "a paper's table by its protocol, beside its figures"),
    "flower": Command("fdgjax.cli.flower", "a federation of real parties by Flower: --app, --keys"),
    "choose": Command("fdgjax.cli.choose", "chooses a method for your data: each domain left out in turn"),
    "search": Command("fdgjax.cli.search", "hyperparameters by held-out data of the sources"),
    "methods": Command("fdgjax.cli.methods", "lists the methods; NAME explains one"),
    "presets": Command("fdgjax.cli.presets", "lists data sets and papers' settings; NAME shows one's keys"),
    "models": Command("fdgjax.cli.models", "lists the networks; NAME explains one, --cost counts operations"),
    "completion": Command("fdgjax.cli.completion", 'bash completes words: eval "$(fdgjax completion)"'),
}
"""The subcommands by name, in the order of the help."""
WITH = "FDGJAX_WITH"
"""The environment variable that holds the files of `--with`, a list in JSON."""


@command
def main(argv: Sequence[str]) -> int:
    """Calls a subcommand; returns its exit status, 2 for one that does not exist."""
    words = run_files(argv[1:])
    name, *rest = words or ["--help"]
    if name in ("--help", "-h"):
        print(subcommand_lines())
        return 0
    if name == "--version":
        print(version("fdgjax"))
        return 0
    command = lookup("subcommand", name, COMMANDS)
    entered: Main = importlib.import_module(command.module).main
    return entered([f"fdgjax {name}", *rest])


def run_files(words: Sequence[str]) -> list[str]:
    """Runs the files of `--with FILE` before the subcommand, and returns the remaining words.

    The processes that a sweep starts run these files, too: they find them in the environment (`WITH`).
    """
    given, rest = files_of_with(), list(words)
    while rest and rest[0].partition("=")[0] == "--with":
        word, equals, file = rest.pop(0).partition("=")
        if not equals and not rest:
            raise UserError(f"{word} got nothing; expected a Python file, or the name of a module, that registers")
        given.append(file if equals else rest.pop(0))
    if files := list(dict.fromkeys(filter(None, given))):
        from fdgjax.config.register import run_file  # here, as it loads JAX

        os.environ[WITH] = json.dumps(files)
        for file in files:
            run_file(file)
    return rest


def files_of_with() -> list[str]:
    """The files of `--with` that were run."""
    files: list[str] = json.loads(os.environ.get(WITH) or "[]")
    return files


def subcommand_lines() -> str:
    """One line for each subcommand."""
    lines = [f"  {name:10s} {command.summary}" for name, command in COMMANDS.items()]
    head = "fdgjax [--with FILE] NAME ARGUMENTS...  (fdgjax NAME --help; fdgjax --version)"
    return "\n".join([head, "FILE: Python that registers methods, models or data of one's own", *lines])


def run_command_line(argv: Sequence[str] | None = None) -> int:
    """The console entry point, called first in a process: `main`, with huge pages if the system supports them."""
    begin_with_huge_pages()
    return main(sys.argv if argv is None else argv)
