"""One experiment: data, model, method, rounds and evaluation put together, for one seed or for several side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fdgjax.building.facts import bytes_per_round, data_facts, frozen_facts, model_facts, privacy_facts, setting
from fdgjax.building.pieces import (
    as_features,
    batching_of,
    check_method,
    client_model,
    execution_of,
    keeps_features,
    make_devices,
    make_evaluation,
    make_method,
    make_plan,
    model_config,
    network_input,
    on_callers_mesh,
    sharing,
    vary,
    with_devices,
)
from fdgjax.config import Config, resolved, seeds_of
from fdgjax.config.hostility import attack_of, hostility
from fdgjax.config.private import protection
from fdgjax.contract import Method, Model, Setup, Variables
from fdgjax.data.domains import Domains
from fdgjax.data.federation import Federation, Partition, federate_seeds, pool, without_labels
from fdgjax.data.loading import load
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.engine import Execution, RoundInfo, State, compile_init, compile_round
from fdgjax.engine.attack import check_attack
from fdgjax.engine.placing import place_data, several_processes
from fdgjax.engine.traffic import traffic
from fdgjax.evaluation.evaluating import Evaluation
from fdgjax.methods import METHODS
from fdgjax.models.cost import Cost, cost
from fdgjax.models.frozen import Trunk
from fdgjax.models.pretrained import read_weights
from fdgjax.variables import label_table


class Experiment(NamedTuple):
    """Everything a run is made of, ready to train.

    config: what it was built from, the first of a family's. seeds: of the splits and of all random draws; those of each
      member in turn where it is a family.
    parts: each seed's split of the data.
    train: the federation as the method trains on it (one client where data are pooled); federation: as it is
    evaluated. Both, and the state, have a seed axis where there are several seeds.
    execution: how clients and seeds are run.
    model: what is trained, from what the federation's samples are: images, or features of a frozen trunk. whole: the
    same variables' model of images. trunk: the frozen stages; None for none.
    shapes: the variables that one client trains. cost: of the client model. facts: the entries of the summary that are
    known before training.
    init: the jitted `init_state` with its arguments. round: jitted, or compiled ahead. evaluation: how a state is
    evaluated. epsilon: what the rounds up to a number cost in privacy; None where nobody is protected.
    """

    config: Config
    seeds: Sequence[int]
    data: Domains
    parts: list[Partition]
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


def build(config: Config, others: Sequence[Config] = ()) -> Experiment:
    """The experiment of a config; loads the data, checks the federation, compiles nothing yet but a frozen trunk.

    Args:
      config: of the experiment.
      others: configs that differ from it in their first seed and in numbers of the method alone. The experiment is then
        that of the whole family, with a seed axis of all its members' seeds.

    Raises:
      UserError: the data, the split, the model or the method does not allow what the config asks for.
    """
    config, mesh = on_callers_mesh(resolved(config))
    entry, protocol = METHODS[config.method.name], PROTOCOLS[config.data.protocol]
    check_method(config, entry, protocol)
    chosen = model_config(config.model, entry)
    weights = read_weights(chosen.pretrained, chosen.name, chosen.unit) if chosen.pretrained else None
    where = config.data
    data = load(
        where.name,
        data_dir=where.dir,
        image_size=where.image_size,
        cache_dir=where.cache_dir,
        same_images=where.same_images,
    )
    seeds = [seed for member in (config, *others) for seed in seeds_of(member)]
    sharings = [sharing(config, protocol, data.domain_names, seed) for seed in seeds]
    parts = [protocol.split(data, how) for how in sharings]
    make_devices(config, len(parts[0].train), data.images.nbytes)
    made = client_model(chosen, data, where, weights, config.dtype)
    kept = keeps_features(config, entry, made.trunk)
    batching = batching_of(config)
    setup = Setup(
        made.rest if kept else made.whole,
        len(parts[0].train),
        config.rounds,
        execution_of(config, mesh),
        domains=len(data.domain_names),
    )
    method = make_method(config, entry, protocol, setup, batching)
    if not config.devices:
        # The method says whether its clients are those of the data.
        config = with_devices(config, 1 if method.pooled else setup.clients, data.images.nbytes)
        if config.devices > 1:
            setup = setup._replace(execution=execution_of(config, mesh))
            method = make_method(config, entry, protocol, setup, batching)
    execution = setup.execution
    federations = federate_seeds(
        as_features(data, made.trunk, chosen, where) if made.trunk and kept else data,
        parts,
        batch_size=config.batch_size,
        drop_last=config.drop_last,
        streaming=where.streaming or several_processes(),
    )
    trained_on = [pool(one) for one in federations] if method.pooled else federations
    if protocol.labelled_server:
        trained_on = [without_labels(one) for one in trained_on]
    plan = make_plan(config, batching, execution, len(trained_on[0].ids), method)
    if attack := attack_of(config.attack, len(data.class_names)):
        check_attack(attack, len(trained_on[0].ids), features=kept, unlabelled=entry.unlabelled)
        plan = plan._replace(attack=attack)
    if protected := protection(config, method, batching, trained_on):
        plan = plan._replace(privacy=protected.round)
    apart = not method.pooled and not protocol.labelled_server and plan.clients_per_round in (0, setup.clients)
    federation, train = place_data(federations, trained_on, execution, streaming=where.streaming, apart=apart)
    varied = vary(config, others, lambda one: make_method(one, entry, protocol, setup, batching)) or method
    travelling, needed = traffic(method, trained_on[0]), cost(made.network, network_input(data, where))
    label_table(travelling.received, method.label)
    numbers = np.array(seeds, np.uint32)
    return Experiment(
        config=config,
        seeds=seeds,
        data=data,
        parts=parts,
        federation=federation,
        train=train,
        execution=execution,
        model=setup.model,
        whole=made.whole,
        trunk=made.trunk,
        method=method,
        shapes=travelling.received,
        cost=needed,
        facts={
            **setting(config, sharings[0]),
            **data_facts(data, sharings[0].target, setup.clients),
            **model_facts(chosen),
            "parameters": needed.parameters,
            **frozen_facts(made.trunk),
            **hostility(config),
            "flops_per_image": needed.flops,
            **bytes_per_round(travelling, 0 if method.pooled else plan.clients_per_round or setup.clients),
            **privacy_facts(config, protected),
        },
        init=partial(compile_init(varied, execution), numbers if len(seeds) > 1 else numbers[0], train),
        round=compile_round(varied, plan),
        evaluation=make_evaluation(config, entry, varied, setup.model, data, parts, execution, seeds),
        epsilon=protected.epsilon if protected else None,
    )
