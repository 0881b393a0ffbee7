"""The command `fdgjax flower`: a federation of real parties, run by Flower.

    fdgjax flower --app DIR --classes a,b --config=METHOD       the app's folder, for `flwr run DIR`, and DIR-operations
    fdgjax flower --keys DIR --clients 3 --host server.example  test certificates, and a key for each node
    fdgjax flower --audit FILE [FILE ...]                       what was sent and received, from logs of messages
    fdgjax flower --node OPTIONS-OF-FLOWER-SUPERNODE            a node with one process for all its messages

With --keys: --host is a name or address by which nodes reach the server, once for each (localhost and 127.0.0.1 are
always included); --port is the server's. DIR/config.toml lets `flwr` find the server: set FLWR_HOME to DIR.

With --app: --workdir is the server's folder; --images the folder of its own labelled images, or --table its table, if
the method needs some; --columns, for tables, names the columns of all parties, numbers by name alone and others with
their categories: 'age,chol,sex=0|1,cp=1|2|3|4';
--unseen client2 leaves that party out of training: it evaluates the others' model, as a new site would;
--config.data.clients counts it, too; --authentication admits only nodes with a registered key; --deadline SECONDS
continues a round without clients that have not answered by then (0 waits for all); --least N is the smallest number of
answers that completes a round; --operations is the folder of what administrators need (a page of what is sent, files
for systemd and Compose, versions), with --host and --port in it, DIR-operations by default.
"""

import argparse
import dataclasses
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fdgjax.config.command_line import joined_words, parse
from fdgjax.config.data_keys import DataConfig
from fdgjax.config.provenance import REGISTERED, provenance
from fdgjax.config.schema import Config
from fdgjax.data.columns import Column
from fdgjax.data.sources.cells import categories_of, of_texts
from fdgjax.data.sources.loading import FROM_FILES, TABLE_DATA
from fdgjax.evaluation.probability_figures import names_in
from fdgjax.utils.command import command, positive_number, seconds
from fdgjax.utils.errors import UserError, check_library
from fdgjax.utils.words import quoted, words_of


@command
def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("fdgjax").setLevel(logging.INFO)  # what is chosen for the method, such as its units
    if "--node" in argv[1:]:
        options = [word for word in argv[1:] if word != "--node"]
        # In this process's place: a SuperNode needs no JAX.
        os.execv(sys.executable, [sys.executable, "-m", "fdgjax.deploy.warm_node", *options])
    words = joined_words(argv[1:])
    asked = parser().parse_args([word for word in words if not of_experiment(word)])
    if asked.keys:
        check_library("--keys", "cryptography", "flower")
        from fdgjax.deploy.keys import make_keys

        make_keys(Path(asked.keys), asked.clients or 3, asked.host, asked.port)
        print(
            f"keys in {asked.keys}: a test authority, the server's certificate, {asked.clients or 3} nodes' keys, and "
            f"config.toml for flwr: export FLWR_HOME={shlex.quote(str(Path(asked.keys).absolute()))}"
        )
        return 0
    if asked.audit:
        from fdgjax.deploy.audit import audit

        return audit(asked.audit)
    if not asked.app:
        raise UserError(
            "fdgjax flower got nothing to do; expected --app DIR, --keys DIR, --node or --audit FILE; see --help"
        )
    words = [argv[0], *filter(of_experiment, words), *([f"--workdir={asked.workdir}"] if asked.workdir else [])]
    return make_app(asked, words)


def of_experiment(word: str) -> bool:
    """Whether an argument belongs to the experiment: `--config` or one of its keys."""
    return word.lstrip("-").startswith(("config=", "config."))


def parser() -> argparse.ArgumentParser:
    """The command's own arguments; all others are the experiment's."""
    made = argparse.ArgumentParser(
        "fdgjax flower", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument("--authentication", action="store_true")
    made.add_argument("--app", default="")
    made.add_argument("--classes", default="")
    made.add_argument("--workdir", default="")
    made.add_argument("--images", default="")
    made.add_argument("--table", default="")
    made.add_argument("--columns", default="")
    made.add_argument("--unseen", default="")
    made.add_argument("--operations", default="")
    made.add_argument("--deadline", type=seconds, default=0.0)
    made.add_argument("--least", type=positive_number, default=1)
    made.add_argument("--audit", nargs="+", type=Path, default=[], metavar="FILE")
    made.add_argument("--keys", default="")
    made.add_argument("--clients", type=positive_number, default=0)
    made.add_argument("--host", action="append", default=[])
    made.add_argument("--port", type=port, default=8000)
    return made


def port(word: str) -> int:
    """The type of an argument that is a port; raises like `seconds`."""
    if not word.isdecimal() or not 0 < int(word) < 2**16:
        raise argparse.ArgumentTypeError(f"got '{word}'; expected a port, 1 to 65535")
    return int(word)


def make_app(asked: argparse.Namespace, words: Sequence[str]) -> int:
    """Writes the app's folder.

    Raises:
      UserError: a key that a deployment needs is missing, or the config cannot be deployed.
    """
    from fdgjax.deploy.app import ServerSettings, write_app
    from fdgjax.deploy.operations import write_operations
    from fdgjax.deploy.terms import Terms, agree
    from fdgjax.models.frozen import trunk_content

    config, workdir = parse(words)
    table = config.data.name in TABLE_DATA
    refuse_registered(config)
    refuse_unused(asked, words, config, table)
    classes, columns, size = classes_in(asked.classes, table), columns_in(asked.columns), config.data.image_size
    parties = config.data.clients or asked.clients
    if len(classes) < 2 or not parties or not (columns if table else size):
        form = "--columns 'age,sex=0|1,...'" if table else "--config.data.image_size=PIXELS"
        raise UserError(
            "fdgjax flower --app needs what no party's data can tell it; expected --classes a,b,c, "
            f"--config.data.clients=N (or --clients N) and {form}"
        )
    shape = (len(columns),) if table else (size, size, 3)
    unseen = unseen_in(asked.unseen, parties)
    if unseen is not None and not asked.workdir:
        workdir = workdir.with_name(f"{workdir.name}-without-client{unseen}")
    clients = parties - (unseen is not None)
    if table:
        check_columns(config.data, columns)
    if asked.least > clients:
        raise UserError(f"--least got {asked.least}, but {clients} clients train; expected at most as many")
    # A protocol with one client for each domain has no number of clients.
    data = dataclasses.replace(config.data, clients=clients if config.data.clients else 0)
    terms = Terms(dataclasses.replace(config, devices=1, data=data), classes, shape, clients, columns, unseen=unseen)
    if config.model.frozen:
        terms = terms._replace(trunk=trunk_content(agree(terms).client.trunk))
    place = asked.table if table else asked.images
    if place and not agree(terms).method.server_training:
        raise UserError(
            f"--{'table' if table else 'images'} got '{place}', but '{config.method.name}' trains at the clients "
            "alone; expected none"
        )
    samples = str(Path(place).absolute()) if place else ""
    app = Path(asked.app)
    settings = ServerSettings(terms, workdir, samples, asked.deadline, asked.least, asked.authentication)
    operations = Path(asked.operations) if asked.operations else app.parent / f"{app.resolve().name}-operations"
    # The first of both, as it finds whatever cannot be deployed.
    write_operations(operations, app, settings, next(iter(asked.host), "server.example"), asked.port)
    write_app(app, settings)
    if left_out := [name for name in names_in(config.figures) if name not in terms.figures]:
        why = "whose threshold is of all parties' samples at once unless config.figures_threshold gives it"
        print(f"not computed: {', '.join(left_out)}, {why}")
    left = "" if unseen is None else f", client {unseen} unseen"
    print(f"flwr run {asked.app}: {config.method.name}, {clients} clients{left}; the server's folder is {workdir}")
    print(f"for administrators: {operations}/README.md")
    return 0


OF_A_SIMULATION = ("target", "server", "excluded", "homogeneity", "label_skew", "domains_per_client")
"""Keys of `config.data` by which a simulation deals samples to clients, and which a deployment does not read."""


def refuse_registered(config: Config) -> None:
    """Raises a `UserError` for names that a file of `--with` registered: Flower's processes do not run it."""
    for key, one in provenance(config).get(REGISTERED, {}).items():
        if one["from"]:
            raise UserError(
                f"config.{key.partition('=')[0]} got '{one['name']}' of {one['from']}, which Flower's processes do not "
                "run; expected the package's own, or yours in the fdgjax that all parties install"
            )


def refuse_unused(asked: argparse.Namespace, words: Sequence[str], config: Config, table: bool) -> None:
    """Raises a `UserError` for an option or a key that says nothing of a deployment's parties, each of which has its
    own samples, or for samples that no node reads."""
    if not table and config.data.name not in FROM_FILES:
        raise UserError(
            f"config.data.name got '{config.data.name}', whose samples are arrays, but nodes read images or a table; "
            "expected such as --config=METHOD:folder or --config=METHOD:table"
        )
    given = {word.lstrip("-").partition("=")[0].removeprefix("config.data.") for word in words}
    for key in OF_A_SIMULATION:
        value, default = getattr(config.data, key), getattr(DataConfig(), key)
        if key in given and value != default:
            raise UserError(
                f"config.data.{key} got {value!r}, but it deals a simulation's samples, and each party has its own; "
                f"expected {default!r}; --unseen=client2 leaves a party out of training"
            )
    for option, of_tables in (("columns", True), ("table", True), ("images", False)):
        if getattr(asked, option) and of_tables != table:
            kind = "tables" if table else "no tables"
            raise UserError(
                f"--{option} got '{getattr(asked, option)}', but '{config.data.name}' has {kind}; expected none"
            )
    if asked.clients and config.data.clients and asked.clients != config.data.clients:
        raise UserError(
            f"--clients got {asked.clients} and config.data.clients {config.data.clients}; expected the number of "
            "parties once"
        )


def classes_in(words: str, table: bool) -> tuple[str, ...]:
    """The classes in words, `a,b,c`, in the order of the labels, which is that of a simulation: for a table's label
    that of numbers, if all are, and for folders that of the alphabet.

    Raises:
      UserError: a class that stands twice, or a single one.
    """
    each = words_of(words)
    classes = categories_of([of_texts(each, frozenset(), ())]) if table else tuple(sorted(set(each)))
    if len(classes) < len(each):
        raise UserError(f"--classes got '{words}'; expected different words, such as a,b,c")
    if len(classes) == 1:
        raise UserError(f"--classes got '{words}' alone; expected at least two, such as a,b,c")
    return classes


def check_columns(data: DataConfig, columns: Sequence[Column]) -> None:
    """Raises a `UserError` if a table's label is not named, or it, the group or one that is to be ignored is a column
    that is trained on."""
    names = [column.name for column in columns]
    if not data.label:
        raise UserError(
            "config.data.label is empty; expected the column of all parties' tables with the class; add "
            "--config.data.label=COLUMN"
        )
    others = {"label": [data.label], "group": [data.group], "ignored": words_of(data.ignored)}
    for key, given in ((key, word) for key, each in others.items() for word in each):
        if given in names:
            left = [quoted(name) for name in names if not any(name in each for each in others.values())]
            raise UserError(
                f"--columns got '{given}', which is config.data.{key}; expected columns to predict the label from: "
                f"{', '.join(left) or 'none is left'}; leave it out of --columns"
            )


def unseen_in(words: str, parties: int) -> int | None:
    """The number of the party that only evaluates, of `2` or `client2`; None for ''.

    Raises:
      UserError: no such party, or no other one.
    """
    if not words:
        return None
    number = words.removeprefix("client")
    if not number.isdecimal() or int(number) >= parties or parties < 2:
        raise UserError(
            f"--unseen got '{words}'; expected one of {parties} clients, client0 to client{parties - 1}, and at least "
            "one other; see --config.data.clients"
        )
    return int(number)


def columns_in(words: str) -> tuple[Column, ...]:
    """The columns of a table in words, `age,sex=0|1`; a word with a comma is in double quotes, `"blood, pressure",age`.

    Raises:
      UserError: a name that stands twice or is empty, or categories that are none, empty or stand twice.
    """
    each = [word.partition("=") for word in words_of(words)]
    columns = tuple(
        Column(name.strip(), tuple(map(str.strip, values.split("|"))) if mark else ()) for name, mark, values in each
    )
    for names in ([column.name for column in columns], *(column.categories for column in columns)):
        if "" in names or len(set(names)) < len(names):
            raise UserError(
                f"--columns got '{words}'; expected each name once, and each of a column's categories, such as "
                "'age,chol,sex=0|1'"
            )
    return columns
