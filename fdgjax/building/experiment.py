"""One experiment: data, model, method, rounds and evaluation put together, for one seed or for several side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fdgjax.building.facts import facts_of
from fdgjax.building.pieces import (
    make_evaluation,
    make_method,
    make_plan,
    network_input,
    training_data,
    vary,
    with_attack,
)
from fdgjax.building.task import Task, make_federations, make_task
from fdgjax.config import Config
from fdgjax.config.private import Protection, protection
from fdgjax.contract import Method, Model, Variables
from fdgjax.data.domains import Domains
from fdgjax.data.federation import Federation, Partition
from fdgjax.engine import Execution, Plan, RoundInfo, State, compile_init, compile_round
from fdgjax.engine.placing import place_data
from fdgjax.engine.traffic import traffic
from fdgjax.evaluation.evaluating import Evaluation
from fdgjax.models.cost import Cost, cost
from fdgjax.models.frozen import Trunk
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
    task = make_task(config, others)
    config, setup = task.config, task.setup
    make = partial(make_method, entry=task.entry, protocol=task.protocol, setup=setup, batching=task.batching)
    method = make(config)
    varied = vary(config, others, make) or method
    federations = make_federations(task)
    trained_on = training_data(federations, method, task.protocol)
    plan, protected = plan_rounds(task, method, trained_on)
    all_train = plan.clients_per_round in (0, setup.clients)
    apart = all_train and not method.pooled and not task.protocol.labelled_server
    streaming = config.data.streaming
    federation, train = place_data(federations, trained_on, setup.execution, streaming=streaming, apart=apart)
    travelling, needed = (
        traffic(method, trained_on[0]),
        cost(task.client.network, network_input(task.data, config.data)),
    )
    label_table(travelling.received, method.label)
    numbers = np.array(task.seeds, np.uint32)
    return Experiment(
        config=config,
        seeds=task.seeds,
        data=task.data,
        parts=task.parts,
        federation=federation,
        train=train,
        execution=setup.execution,
        model=setup.model,
        whole=task.client.whole,
        trunk=task.client.trunk,
        method=method,
        shapes=travelling.received,
        cost=needed,
        facts=facts_of(task, method, plan, needed, travelling, protected),
        init=partial(compile_init(varied, setup.execution), numbers if len(numbers) > 1 else numbers[0], train),
        round=compile_round(varied, plan),
        evaluation=make_evaluation(
            config, task.entry, varied, setup.model, task.data, task.parts, setup.execution, task.seeds
        ),
        epsilon=protected.epsilon if protected else None,
    )


def plan_rounds(task: Task, method: Method, trained_on: Sequence[Federation]) -> tuple[Plan, Protection | None]:
    """How the rounds are executed, and what they cost in privacy; None where nobody is protected.

    Raises:
      UserError: an attack, a defence or a protection that does not fit the method or the data.
    """
    config, clients = task.config, len(trained_on[0].ids)
    plan = make_plan(config, task.batching, task.setup.execution, clients, method)
    plan = with_attack(plan, config, task.entry, len(task.data.class_names), clients, features=task.features)
    protected = protection(config, method, task.batching, trained_on)
    return plan._replace(privacy=protected.round if protected else None), protected
