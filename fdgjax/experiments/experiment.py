"""One experiment: data, model, method, rounds and evaluation put together, for one seed or for several side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.config import Config, resolved, seeds_of
from fdgjax.config.privacy import Protection, protection
from fdgjax.config.robustness import hostility
from fdgjax.contract import Method, Model, Setup, Variables
from fdgjax.data.encoding import Encoding
from fdgjax.data.federation import Federation, Partition, federate_seeds
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import Execution, RoundInfo, RoundPlan, State, compile_init, compile_round
from fdgjax.engine.sharding import place_data, several_processes
from fdgjax.engine.traffic import Traffic, traffic
from fdgjax.engine.unchanged import check_weight_values
from fdgjax.evaluation.evaluating import Evaluation
from fdgjax.experiments.chosen_data import chosen_data
from fdgjax.experiments.components import (
    batch_hyper,
    batching_of,
    check_method,
    check_room,
    choose_devices,
    execution_of,
    make_method,
    make_plan,
    on_callers_mesh,
    slots_of,
    split_spec,
    training_data,
    with_attack,
)
from fdgjax.experiments.draft import Draft
from fdgjax.experiments.evaluations import make_evaluation
from fdgjax.experiments.facts import (
    bytes_per_round,
    frozen_facts,
    method_facts,
    model_facts,
    privacy_facts,
    split_facts,
)
from fdgjax.experiments.model import (
    as_features,
    encoding_of,
    fit_model,
    keeps_features,
    label_scale_of,
    model_config,
    network_input,
    step_flops,
)
from fdgjax.experiments.regression_checks import check_task
from fdgjax.methods import METHODS
from fdgjax.models.cost import Cost, cost
from fdgjax.models.frozen import Trunk
from fdgjax.models.pretrained.convert import read_weights
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import label_table


class Experiment(NamedTuple):
    """Everything a run is made of, ready to train.

    config: what it was built from; for a family, the first member's. seeds: of all random draws (of the splits unless
      `data.split_seed` is given); for a family, the seeds of each member in turn.
    split_specs, parts: the specification of each seed's split of the data, and the split.
    encodings: how each seed's stored values become inputs, see `Federation.encoding`.
    label_scales: how each seed's numeric labels are standardised; None for classes.
    train: the federation that the method trains on (one client if data are pooled); federation: the one for evaluation.
    Both, and the state, have a seed axis if there are several seeds.
    execution: how clients and seeds are run.
    model: the trained model; its inputs are the federation's samples: images, or features of a frozen trunk. whole: the
    model from images to outputs, with the same variables. trunk: the frozen stages; None for none.
    shapes: the variables that one client trains. cost: of the client model. facts: the entries of the summary that are
    known before training.
    init: the jitted `init_state` with its arguments. round: jitted, or compiled ahead. evaluation: how a state is
    evaluated. epsilon: the privacy cost of a number of rounds; None if nobody is protected.
    """

    config: Config
    seeds: Sequence[int]
    data: Domains
    split_specs: Sequence[SplitSpec]
    parts: list[Partition]
    encodings: Sequence[Encoding | None]
    label_scales: Sequence[LabelScale | None]
    federation: Federation
    train: Federation
    execution: Execution
    model: Model
    whole: Model
    trunk: Trunk | None
    method: Method
    shapes: Variables
    cost: Cost
    facts: dict[str, Any]
    init: partial[State]
    round: Callable[[State, Federation], tuple[State, RoundInfo]]
    evaluation: Evaluation
    epsilon: Callable[[int], float] | None


def check_precision() -> None:
    """Raises a `UserError` where `jax_enable_x64` is set: methods and BatchNorm are made for float32, and many mix both
    types there."""
    if jax.config.values["jax_enable_x64"]:
        raise UserError(
            "JAX computes in float64 here (jax_enable_x64); expected float32; leave it unset, or build and train "
            "within `with jax.enable_x64(False):`"
        )


def build(config: Config, others: Sequence[Config] = ()) -> Experiment:
    """The experiment of a config: loads the data and checks the federation; compiles nothing but a frozen trunk.

    Args:
      config: the experiment's config.
      others: configs that differ from it only in their first seed, in numbers of the method, and in which domains are
        unseen or excluded, of as many clients. The experiment is then that of the whole family, and its seed axis has
        all members' seeds.

    Raises:
      UserError: the data, the split, the model or the method does not allow what the config requests, or JAX computes
        in float64.
    """
    check_precision()
    draft = make_draft(config, others)
    config, setup = draft.config, draft.setup
    make = partial(make_method, entry=draft.entry, protocol=draft.protocol, setup=setup, batching=draft.batching)
    method = make(config)
    batched = batch_hyper(config, others, make) or method
    federations = make_federations(draft)
    trained_on = training_data(federations, method, draft.protocol)
    plan, protected = plan_rounds(draft, method, trained_on)
    all_train = plan.clients_per_round in (0, setup.clients)
    apart = all_train and not method.pooled and not draft.protocol.labelled_server
    streaming = config.data.streaming
    federation, train = place_data(federations, trained_on, setup.execution, streaming=streaming, apart=apart)
    needed = cost(draft.client.network, network_input(draft.data, config.data, draft.encodings[0]))
    travelling = traffic(method, trained_on[0])
    label_table(travelling.received, method.label)
    numbers = np.array(draft.seeds, np.uint32)
    return Experiment(
        config=config,
        seeds=draft.seeds,
        data=draft.data,
        split_specs=draft.split_specs,
        parts=draft.parts,
        encodings=draft.encodings,
        label_scales=draft.label_scales,
        federation=federation,
        train=train,
        execution=setup.execution,
        model=setup.model,
        whole=draft.client.whole,
        trunk=draft.client.trunk,
        method=method,
        shapes=travelling.received,
        cost=needed,
        facts=known_facts(draft, method, plan, needed, travelling, protected),
        init=partial(compile_init(batched, setup.execution), numbers if len(numbers) > 1 else numbers[0], train),
        round=compile_round(batched, plan),
        evaluation=make_evaluation(draft, batched),
        epsilon=protected.epsilon if protected else None,
    )


def plan_rounds(draft: Draft, method: Method, trained_on: Sequence[Federation]) -> tuple[RoundPlan, Protection | None]:
    """How the rounds are executed, and their privacy cost, which is None if nobody is protected.

    Raises:
      UserError: an attack, a defence or a protection that does not fit the method or the data, or clients' weights that
        are none.
    """
    config, federation = draft.config, trained_on[0]
    for one in trained_on:
        check_weight_values(method.weights(one.train.length), one.train.length)
    plan = make_plan(config, draft.batching, draft.setup.execution, method, federation)
    classes, images = len(draft.data.class_names), draft.data.images
    plan = with_attack(plan, config, method, federation, classes=classes, images=images, features=draft.features)
    protected = protection(config, method, draft.batching, trained_on)
    return plan._replace(privacy=protected.round if protected else None), protected


def make_draft(config: Config, others: Sequence[Config]) -> Draft:
    """The draft of a config, or of a family given by its first config and the others; raises like `build`."""
    config, mesh = on_callers_mesh(resolved(config))
    entry, protocol = METHODS[config.method.name], PROTOCOLS[config.data.protocol]
    check_method(config, entry, protocol)
    check_task(config, entry, protocol)
    asked = model_config(config.model, entry)
    weights = read_weights(asked.pretrained, asked.name, asked.unit) if asked.pretrained else None
    data = chosen_data(config.data, config.task)
    members = [(member, seed) for member in (config, *others) for seed in seeds_of(member)]
    split_specs = [split_spec(member, protocol, data.domain_names, seed) for member, seed in members]
    parts = [protocol.split(data, how) for how in split_specs]
    clients = len(parts[0].train)
    if any(len(split.train) != clients for split in parts):
        raise UserError("the runs cannot train as one program: their clients are not equally many")
    held_bytes = 0 if config.data.streaming else data.inputs.nbytes
    config = choose_devices(config, entry, parts, held_bytes, partial(step_flops, config, asked, data))
    places = [np.concatenate(parts[0].train)] if entry.pooled(config.method) else parts[0].train
    domains = max(len(np.unique(data.domains[rows])) for rows in places)
    encodings = [encoding_of(data, split, config.data) for split in parts]
    model, client = fit_model(config, entry, data, encodings[0], weights, clients, domains)
    batching = batching_of(config)
    features = keeps_features(config, entry, client.trunk, batching, encodings[0])
    return Draft(
        config=config,
        entry=entry,
        protocol=protocol,
        seeds=[seed for _, seed in members],
        data=data,
        split_specs=split_specs,
        parts=parts,
        model=model,
        client=client,
        features=features,
        setup=Setup(
            client.rest if features else client.whole,
            clients,
            config.rounds,
            execution_of(config, mesh, slots_of(config, entry, parts)),
            domains=len(data.domain_names),
        ),
        batching=batching._replace(copies=config.model.frozen_copies) if features and batching.augment else batching,
        encodings=encodings,
        label_scales=[label_scale_of(data, split) for split in parts],
    )


def make_federations(draft: Draft) -> list[Federation]:
    """Each seed's federation, whose samples are images or features of the frozen stages.

    Raises:
      UserError: samples that do not fit in memory.
    """
    config, trunk, data = draft.config, draft.client.trunk, draft.data
    if trunk and draft.features:
        data = as_features(data, trunk, draft.model, config.data, draft.batching)
    streaming = config.data.streaming or several_processes()
    if not streaming:
        check_room(data.inputs)
    return federate_seeds(
        data,
        draft.parts,
        batch_size=config.batch_size,
        drop_last=config.drop_last,
        streaming=streaming,
        encodings=draft.encodings,
        label_scales=draft.label_scales,
        pooled=METHODS[config.method.name].pooled(config.method),
    )


def known_facts(
    draft: Draft, method: Method, plan: RoundPlan, needed: Cost, travelling: Traffic, protected: Protection | None
) -> dict[str, Any]:
    """The entries of the summary that are known before training."""
    config, clients = draft.config, draft.setup.clients
    return {
        **method_facts(config),
        **split_facts(draft.data, draft.split_specs[0], draft.parts[0]),
        "domains": list(draft.data.domain_names),
        **model_facts(draft.model),
        "parameters": needed.parameters,
        **frozen_facts(draft.client.trunk),
        **hostility(config),
        "flops_per_image": needed.flops,
        **bytes_per_round(travelling, 0 if method.pooled else plan.clients_per_round or clients),
        **privacy_facts(config, protected),
    }
