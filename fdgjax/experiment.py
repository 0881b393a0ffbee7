"""One experiment: data, model, method and rounds put together, for one seed or for several side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.stages import Wrapped

from fdgjax.config import Config, ModelConfig, seeds_of
from fdgjax.contract import Method, Model, Output, Setup, Variables
from fdgjax.data.domains import Domains
from fdgjax.data.federation import Federation, Partition, federate_seeds, pool, stack_seeds, without_labels
from fdgjax.data.loading import load
from fdgjax.data.protocols import PROTOCOLS, Sharing
from fdgjax.engine import Execution, Plan, RoundInfo, State, compile_init, compile_round, everywhere
from fdgjax.engine.local import Batching
from fdgjax.engine.traffic import Traffic, traffic
from fdgjax.errors import UserError
from fdgjax.evaluation import Tallies, compile_evaluation, compile_representation
from fdgjax.evaluation.linear_probe import LAYERS
from fdgjax.methods import METHODS
from fdgjax.methods.parts.client_models import CLIENT_MODELS
from fdgjax.methods.parts.pseudo_labelled import on_pseudo_labels
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.cost import Cost, cost
from fdgjax.models.pretrained import read_weights, starting_from
from fdgjax.run.memory import Memory, predict
from fdgjax.variables import bytes_of, label_table


class Experiment(NamedTuple):
    """Everything a run is made of, ready to train.

    parts: each seed's split of the data.
    train: the federation as the method trains on it (one client where data are pooled); federation: as it is
    evaluated. Both, and the state, have a seed axis where there are several seeds.
    shapes: the variables that one client trains. cost: of the client model. facts: what the summary says of it before
    any training.
    init: the jitted state before the first round, with its arguments. round, tally: jitted, or compiled ahead.
    """

    config: Config
    data: Domains
    parts: list[Partition]
    federation: Federation
    train: Federation
    method: Method
    shapes: Variables
    cost: Cost
    facts: dict[str, Any]
    init: partial[State]
    round: Callable[[State, Federation], tuple[State, RoundInfo]]
    tally: Callable[[State, Federation], Tallies]


def as_model(module: nn.Module, image_shape: Sequence[int]) -> Model:
    """A Flax module called as `module(images, train=...)` as the two pure functions of the contract; its features are
    what it sows last under that name, and whatever else it sows it tells as `more`."""

    def init(key: jax.Array) -> Variables:
        return dict(module.init(key, jnp.zeros((1, *image_shape), jnp.float32), train=False))

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Variables]:
        mutable = [name for name in variables if name != "params"] if train else []
        logits, changed = module.apply(
            variables, images, train=train, rngs={"dropout": key}, mutable=[*mutable, "intermediates"]
        )
        # What submodules sow is theirs; of values of one name the last is the nearest to the logits.
        sown = changed.get("intermediates", {}).items()
        told = {name: values[-1] for name, values in sown if isinstance(values, tuple)}
        features = told.pop("features", jnp.zeros((len(logits), 0), logits.dtype))
        return Output(logits, features, told), {name: changed[name] for name in mutable}

    return Model(init, apply)


def build(config: Config) -> Experiment:
    """The experiment of a config; loads the data, checks the federation, compiles nothing yet.

    Raises:
      UserError: whatever the data, the split or the method cannot do.
    """
    execution = make_execution(config)
    place = everywhere(execution)
    file = config.model.pretrained
    weights = read_weights(file, config.model.name, unit_name(config)) if file else None
    data = load(
        config.data.name,
        data_dir=config.data.dir,
        image_size=config.data.image_size,
        cache_dir=config.data.cache_dir,
    )
    protocol = PROTOCOLS[config.data.protocol]
    target, server = unseen_and_server(config, data.domain_names)
    seeds = seeds_of(config)
    parts = [split(config, data, target, server, seed) for seed in seeds]
    federations = federate_seeds(
        data, parts, batch_size=config.batch_size, drop_last=config.drop_last, streaming=config.data.streaming
    )
    module, image_shape = make_module(config, len(data.class_names)), data.images.shape[1:]
    model, price = as_model(module, image_shape), cost(module, image_shape)
    model = starting_from(weights, model) if weights else model
    clients = len(parts[0].train)
    method = make_method(config, Setup(model, clients, config.rounds, execution))
    trained_on = federations
    if method.pooled:
        trained_on = [pool(one) for one in trained_on]
    if protocol.labelled_server:
        trained_on = [without_labels(one) for one in trained_on]
    federation, train = (jax.device_put(stack_seeds(each), place) for each in (federations, trained_on))
    plan = make_plan(config, len(train.ids))
    travelling = traffic(method, trained_on[0])
    evaluation = make_evaluation(config, method, model, len(data.domain_names))
    numbers = jnp.asarray(list(seeds), jnp.uint32)
    return Experiment(
        config=config,
        data=data,
        parts=parts,
        federation=federation,
        train=train,
        method=method,
        shapes=travelling.received,
        cost=price,
        facts=describe(config, data, target, server, clients, method, travelling, plan, price),
        init=partial(compile_init(method, execution), numbers if len(seeds) > 1 else numbers[0], train),
        round=compile_round(method, plan),
        tally=evaluation,
    )


def unseen_and_server(config: Config, names: Sequence[str]) -> tuple[str, str]:
    """The unseen domain and the server's, '' where the protocol has none."""
    protocol = PROTOCOLS[config.data.protocol]
    target = config.data.target or (names[0] if protocol.unseen else "")
    others = [name for name in names if name != target]
    return target, config.data.server or (others[0] if protocol.labelled_server and others else "")


def make_method(config: Config, setup: Setup) -> Method:
    """The method, on pseudo-labels if it needs labels that clients do not have."""
    entry = METHODS[config.method]
    if PROTOCOLS[config.data.protocol].labelled_server and not entry.server:
        batching = make_batching(config)
        method = on_pseudo_labels(entry.build, setup, config.hyper, config.pseudo_labels, batching)
    else:
        method = entry.build(setup, config.hyper)
    return CLIENT_MODELS[config.client_model](method)


def make_evaluation(config: Config, method: Method, model: Model, domains: int) -> Wrapped:
    """The jitted evaluation of a state: counts of right answers, or what a probe is to look at."""
    size, execution = config.eval_batch_size, make_execution(config)
    if METHODS[config.method].unlabelled:
        layer = LAYERS[config.probe.layer]
        return compile_representation(method, model, layer, batch_size=size, execution=execution)
    return compile_evaluation(
        method,
        model,
        domains=domains,
        batch_size=size,
        adapt_batch_size=config.batch_size,
        execution=execution,
    )


def split(config: Config, data: Domains, target: str, server: str, seed: int) -> Partition:
    """One seed's split of the data."""
    how = Sharing(
        target=target,
        server=server,
        clients=config.data.clients,
        domains_per_client=config.data.domains_per_client,
        validation=config.data.validation,
        test=config.data.test,
        shots=config.data.shots,
        seed=seed,
    )
    return PROTOCOLS[config.data.protocol].split(data, how)


def unit_name(config: Config) -> str:
    """What the model's replaceable units are: the config's word, else the method's wish; '' for the model's own."""
    return config.model.unit or METHODS[config.method].unit


def head_name(config: Config) -> str:
    """What comes after the network: the config's word, else the method's wish; '' for nothing."""
    return config.model.head or METHODS[config.method].head


def make_module(config: Config, classes: int) -> nn.Module:
    """The client model."""
    name, width, unit = config.model.name, config.model.width, unit_name(config)

    def network(outputs: int) -> nn.Module:
        return MODELS[name](outputs, width, UNITS[unit] if unit else None)

    return HEADS[head_name(config) or "linear"](network, classes, width)


def compile_ahead(experiment: Experiment, state: State) -> tuple[Experiment, Memory]:
    """The experiment with its programs compiled, so that no round can compile again, and the memory they will take."""
    train, federation = experiment.train, experiment.federation
    # The types say Callable; until here they are jitted functions.
    programs: list[Any] = [experiment.round, experiment.tally]
    arguments = ((state, train), (state, federation))
    round_, tally = (f.lower(*args).compile() for f, args in zip(programs, arguments, strict=True))
    memory = predict((round_, tally), (train, federation), state, experiment.config.devices)
    return experiment._replace(round=round_, tally=tally), memory


def state_shapes(experiment: Experiment) -> State:
    """The state's arrays without their numbers, as a checkpoint is read: shape, dtype and where they lie."""
    place = everywhere(make_execution(experiment.config)) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    # The type says Callable; it is a jitted function.
    init: Any = experiment.init.func
    shapes = init.eval_shape(*experiment.init.args)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes)


def make_execution(config: Config) -> Execution:
    """How clients are run."""
    return Execution(config.client_axis, config.chunk, config.devices, config.seed_axis)


def make_batching(config: Config) -> Batching:
    """How local data become minibatches."""
    return Batching(config.local_epochs, config.batch_size, config.drop_last)


def make_plan(config: Config, clients: int) -> Plan:
    """How the rounds are executed.

    Raises:
      UserError: more clients per round than there are.
    """
    if config.clients_per_round > clients:
        raise UserError(
            f"config.clients_per_round got {config.clients_per_round}, but only {clients} clients train; "
            f"expected at most {clients}, or 0 for all"
        )
    return Plan(
        batching=make_batching(config),
        clients_per_round=config.clients_per_round,
        execution=make_execution(config),
        drop_nonfinite=config.drop_nonfinite,
    )


def describe(
    config: Config,
    data: Domains,
    target: str,
    server: str,
    clients: int,
    method: Method,
    travelling: Traffic,
    plan: Plan,
    price: Cost,
) -> dict[str, Any]:
    """What the summary says of an experiment before any training."""
    label_table(travelling.received, method.label)
    many = 0 if method.pooled else plan.clients_per_round or clients
    return {
        "method": config.method,
        "dataset": config.data.name,
        "protocol": config.data.protocol,
        "target": target,
        **({"server": server} if server else {}),
        "seed": config.seed,
        "rounds": config.rounds,
        "clients": clients,
        "domains": list(data.domain_names),
        **model_facts(config),
        "parameters": price.parameters,
        "flops_per_image": price.flops,
        "bytes_up_per_round": many * bytes_of(travelling.message),
        "bytes_down_per_round": many * bytes_of(travelling.sent),
    }


def model_facts(config: Config) -> dict[str, Any]:
    """The model's name, and its width, units, head and start where they are not its own."""
    own = {key: getattr(ModelConfig, key) for key in ("width", "unit", "head", "pretrained")}
    chosen = {**own, "width": config.model.width, "pretrained": config.model.pretrained}
    chosen |= {"unit": unit_name(config), "head": head_name(config)}
    return {"model": config.model.name} | {key: value for key, value in chosen.items() if value != own[key]}
