"""The server's folder, in the form of a simulated run's, for reports: config.json, metrics.jsonl and summary.json.

`rounds.jsonl` beside them has what only a deployment has: who was missing, bytes, and seconds; `federation.json` what
tells the federation from others.
"""

import dataclasses
import json
import statistics
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fdgjax.config.privacy import Protection
from fdgjax.deploy.evaluated_rounds import COUNTED, GROUPED, ByTable, domain_names
from fdgjax.deploy.evaluation import has_predictions
from fdgjax.deploy.server import ServerPrograms
from fdgjax.deploy.terms import Terms, agree, as_data, federation_facts, federation_of, no_samples
from fdgjax.engine.round import init_state, run_round
from fdgjax.evaluation.metrics import Record, short_names
from fdgjax.experiments import bytes_per_round, method_facts, model_config, model_facts
from fdgjax.experiments.facts import mean_of_sizes, privacy_facts
from fdgjax.experiments.model import network_input
from fdgjax.methods import METHODS
from fdgjax.models.cost import cost
from fdgjax.run.extend_rounds import continued_from, earlier_rounds, prolong
from fdgjax.run.loop import trained_images
from fdgjax.run.memory_check import peak_bytes
from fdgjax.run.records import Workdir, open_workdir, summarise, write_summary
from fdgjax.run.records.workdir import first_difference
from fdgjax.utils.checksums import Damaged, read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_lines

DEPLOYED = (
    "missing",
    "bytes_down",
    "bytes_up",
    "compiled",
    "seconds",
    "seconds_server",
    "seconds_node",
    "seconds_transport",
    "seconds_evaluation",
)
"""The keys of a round's record that only a deployment has."""
STATES = "server_states"
"""The folder of the server's checkpoints, which are no simulated run's."""
FEDERATION = "federation.json"
"""The file with the `identity` of the federation, as the config alone may be another federation's, too, and with the
folder's name."""
NAME = "name"
AGAIN = "make the app with another --workdir to begin again"
"""What helps with a folder that cannot be used."""


def open_folder(folder: Path, terms: Terms) -> Workdir:
    """The server's folder for these terms, made if it does not exist; an earlier run of fewer rounds is continued.

    Raises:
      UserError: the folder holds another experiment, another federation's run, files of something else, or fewer rounds
        of a method whose rounds depend on their number.
    """
    file = folder / FEDERATION
    if file.is_file():
        refuse_others(file, terms)
    if earlier := earlier_rounds(folder, terms.config):
        refuse_schedules(folder, terms, earlier)
        prolong(Workdir(folder), terms.config, earlier)
    workdir = open_workdir(folder, terms.config)
    if not file.is_file():  # a new folder, or one that an earlier version made
        write_checked_json(file, {**identity(terms), NAME: uuid.uuid4().hex})
    return workdir


def name_of(folder: Path) -> str:
    """The name of the server's folder, see `WORKDIR`; raises a `UserError` like `open_folder`."""
    return str(read_federation(folder / FEDERATION)[NAME])


def identity(terms: Terms) -> dict[str, Any]:
    """What tells the federation from others, as JSON has it."""
    plain: dict[str, Any] = json.loads(json.dumps({**federation_facts(terms), "trunk": terms.trunk}))
    return plain


def refuse_others(file: Path, terms: Terms) -> None:
    """Raises a `UserError` if the folder's file is damaged, or says that the run is another federation's; the message
    names the first entry that differs."""
    held = read_federation(file)
    if differing := first_difference({**identity(terms), NAME: held[NAME]}, held):
        name, here, there = differing
        raise UserError(
            f"workdir {file.parent} holds another federation's run: {name} is {there!r} there and {here!r} here; "
            f"expected the same; {AGAIN}"
        )


def read_federation(file: Path) -> dict[str, Any]:
    """The content of such a file; raises `Damaged` if it differs from its checksum."""
    try:
        return read_checked_json(file)
    except Damaged as error:
        raise Damaged(f"{error}; restore it from a copy, or {AGAIN}") from error


def refuse_schedules(folder: Path, terms: Terms, earlier: int) -> None:
    """Raises a `UserError` if the longer run's rounds are not those of the run of `earlier` rounds: if they are other
    programs, or have other noise."""
    config = terms.config
    shorter = terms._replace(config=dataclasses.replace(config, rounds=earlier))
    # The noise by which all rounds cost epsilon is less with fewer rounds; it is computed once the clients have joined.
    if config.privacy.epsilon or programs(terms) != programs(shorter):
        raise UserError(
            f"workdir {folder} holds {earlier} rounds of '{config.method.name}' with settings by which each depends on "
            f"their number, and config.rounds is {config.rounds} here; expected {earlier}; {AGAIN}"
        )


def programs(terms: Terms) -> list[str]:
    """The text of the lowered programs that initialise a state and train all parties for a round, on a sample each."""
    agreed = agree(terms)
    federation = federation_of(terms, no_samples(terms), lengths=np.ones(terms.clients))
    init = jax.jit(partial(init_state, agreed.method))
    round_ = jax.jit(partial(run_round, agreed.method, agreed.plan))
    seed = np.uint32(terms.config.seed)
    state = jax.eval_shape(init, federation, seed)
    lowered = (init.lower(federation, seed), round_.lower(state, federation))
    return [each.as_text() for each in lowered]


def write_records(workdir: Workdir, records: Sequence[Record]) -> None:
    """Writes the rounds so far: what a simulation records, and what only a deployment has."""
    own = ("round", "participants", "dropped", "train_loss", "server_loss", *DEPLOYED)
    write_lines(workdir.path / "rounds.jsonl", [{k: v for k, v in record.items() if k in own} for record in records])
    hidden = (*DEPLOYED, COUNTED, GROUPED)
    write_lines(workdir.metrics, [{k: v for k, v in record.items() if k not in hidden} for record in records])


def write_result(workdir: Workdir, server: ServerPrograms, lengths: np.ndarray, records: Sequence[Record]) -> None:
    """Writes `summary.json`, once all rounds are done."""
    config = server.agreed.terms.config
    seconds = [record["seconds"] for record in records]
    timings = {
        "images_per_second": images_of(server, lengths) / statistics.median(seconds),
        "wall_seconds": sum(seconds),
        "seconds_per_round": statistics.median(seconds),
        "predicted_memory_bytes": 0,
        "peak_memory_bytes": peak_bytes(),
    }
    summary = summarise(records, config.selection, facts_of(server, records), timings)
    write_summary(workdir, summary | continued_from(workdir))


def images_of(server: ServerPrograms, lengths: np.ndarray) -> float:
    """Training images per round, at clients of these numbers of samples and at the server."""
    serves = server.agreed.method.server_training is not None
    return trained_images(server.agreed.terms.config, lengths, serves * np.asarray(server.federation.server.length))


def facts_of(server: ServerPrograms, records: Sequence[Record]) -> dict[str, Any]:
    """The entries of the summary that are no figures, as far as a server knows them."""
    agreed = server.agreed
    terms, config = agreed.terms, agreed.terms.config
    like = as_data(no_samples(terms), terms)
    needed = cost(agreed.client.network, network_input(like, config.data, terms.encoding))
    privacy = agreed.plan.privacy
    protected = None if privacy is None else Protection(privacy, lambda _: records[-1]["privacy_epsilon"])
    newest = next((record for record in reversed(records) if COUNTED in record), {})
    return {
        **method_facts(config),
        "target": "" if terms.unseen is None else domain_names(terms)[terms.unseen],
        "clients": terms.clients,
        "domains": list(domain_names(terms)),
        **model_facts(model_config(config.model, METHODS[config.method.name])),
        "parameters": needed.parameters,
        "flops_per_image": needed.flops,
        **privacy_facts(config, protected),
        **bytes_per_round(server.shapes, config.clients_per_round or terms.clients),
        **sizes(terms, newest.get(COUNTED, {}), newest.get(GROUPED)),
    }


def sizes(terms: Terms, counted: ByTable, grouped: ByTable | None = None) -> dict[str, Any]:
    """How many samples are behind the figures, see `fdgjax.experiments.facts.image_facts`.

    Args:
      terms: of the federation. counted: the numbers of samples. grouped: of groups, None where they are not grouped.
    """
    if not has_predictions(terms) or not counted:
        return {}
    validation, test, unseen = shown_sizes(terms, counted if grouped is None else grouped)
    counts = {
        "id_accuracy": mean_of_sizes([*validation.values()]),
        "ood_accuracy": float(sum(unseen.values())),
        "all_accuracy": float(sum(test.values())),
        "avg_accuracy": mean_of_sizes([*test.values()]),
    }
    return {
        "images_by_domain": by_domain(terms, counted),
        **({} if grouped is None else {"groups_by_domain": by_domain(terms, grouped)}),
        "test_images": {figure: count for figure, count in counts.items() if count},
    }


def shown_sizes(terms: Terms, counted: ByTable) -> list[Mapping[str, int]]:
    """By party: of the clients' validation and test samples, and of the unseen party's own."""
    validation, test, target = (counted.get(name, {}) for name in ("source", "test", "target"))
    return [validation, test, {party: number for party, number in target.items() if party == str(terms.unseen)}]


def by_domain(terms: Terms, counted: ByTable) -> dict[str, int]:
    """Of each party's domain, those behind its accuracy."""
    validation, test, unseen = shown_sizes(terms, counted)
    return {f"client{party}": number for party, number in {**(test or validation), **unseen}.items()}


def in_words(record: Record, terms: Terms) -> str:
    """A round in one line."""
    here = len(record["participants"]) - len(record["missing"])
    without = f", without {record['missing']}" if record["missing"] else ""
    shown = "".join(f", {words} {record[key]:.3f}" for key, words in short_names().items() if key in record)
    none = "loss withheld" if here else "no loss"
    loss = none if record["train_loss"] is None else f"loss {record['train_loss']:.4f}"
    spent = f", epsilon {record['privacy_epsilon']:.4g}" if "privacy_epsilon" in record else ""
    seconds = record.get("seconds_evaluation")
    evaluated = "" if seconds is None else f", {seconds:.1f} to evaluate"
    return (
        f"round {record['round']} of {terms.config.rounds}: {loss}{spent}{shown}, {here} of "
        f"{len(record['participants'])} clients{without}; {record['seconds']:.1f} s: slowest node "
        f"{record['seconds_node']:.1f}, server {record['seconds_server']:.1f}, transport and starting processes "
        f"{record['seconds_transport']:.1f}{evaluated}; {record['compiled']} programs compiled; "
        f"{record['bytes_down']:,} bytes down, {record['bytes_up']:,} up"
    )
