"""One experiment: data, model, method and rounds put together; training with records and exact resume."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.config import Config
from fdgjax.contract import Method, Model, PyTree, Setup, Variables
from fdgjax.data import Domains, label_histogram, load
from fdgjax.engine import Execution, Plan, RoundInfo, State, compile_round, everywhere, init_state
from fdgjax.engine.local import Batching
from fdgjax.errors import UserError
from fdgjax.evaluation import Metrics, Tallies, compile_evaluation, measure
from fdgjax.federation import Federation, Partition, federate, partition, pool
from fdgjax.memory import Memory, predict
from fdgjax.methods import METHODS
from fdgjax.models import MODELS
from fdgjax.variables import bytes_by_label, label_table

Record = dict[str, Any]


class Experiment(NamedTuple):
    """Everything a run is made of, ready to train.

    train: the federation as the method trains on it (one client where data are pooled); federation: as it is
    evaluated. facts: what the summary says of it before any training. round, tally: jitted, or compiled ahead.
    """

    config: Config
    data: Domains
    parts: Partition
    federation: Federation
    train: Federation
    method: Method
    shapes: Variables
    facts: dict[str, Any]
    init: Callable[[], State]
    round: Callable[[State, Federation], tuple[State, RoundInfo]]
    tally: Callable[[PyTree, PyTree, Federation], Tallies]


def as_model(module: nn.Module, image_shape: Sequence[int]) -> Model:
    """A Flax module called as `module(images, train=...)` as the two pure functions of the contract."""

    def init(key: jax.Array) -> Variables:
        return dict(module.init(key, jnp.zeros((1, *image_shape), jnp.float32), train=False))

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> tuple[jax.Array, Variables]:
        mutable = [name for name in variables if name != "params"] if train else []
        logits, changed = module.apply(variables, images, train=train, rngs={"dropout": key}, mutable=mutable)
        return logits, dict(changed)

    return Model(init, apply)


def build(config: Config) -> Experiment:
    """The experiment of a config; loads the data, checks the federation, compiles nothing yet.

    Raises:
      UserError: whatever the data, the split or the method cannot do.
    """
    execution = make_execution(config)
    place = everywhere(execution)
    data = load(
        config.data.name,
        data_dir=config.data.dir,
        image_size=config.data.image_size,
        cache_dir=config.data.cache_dir,
    )
    target = config.data.target or data.domain_names[0]
    parts = partition(
        data,
        target=target,
        clients=config.data.clients,
        domains_per_client=config.data.domains_per_client,
        validation=config.data.validation,
        shots=config.data.shots,
        seed=config.seed,
    )
    federation = jax.device_put(federate(data, parts, batch_size=config.batch_size, drop_last=config.drop_last), place)
    model = as_model(MODELS[config.model](classes=len(data.class_names)), data.images.shape[1:])
    entry = METHODS[config.method]
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    setup = Setup(model, federation, len(parts.train), config.rounds, execution)
    method = entry.build(setup, config.hyper)
    train = jax.device_put(pool(federation), place) if method.pooled else federation
    plan = make_plan(config, len(train.ids))
    evaluation = compile_evaluation(
        method,
        model,
        domains=len(data.domain_names),
        batch_size=config.eval_batch_size,
        execution=execution,
    )
    return Experiment(
        config=config,
        data=data,
        parts=parts,
        federation=federation,
        train=train,
        method=method,
        shapes=shapes,
        facts=describe(config, data, target, method, shapes, plan, len(parts.train)),
        init=lambda: jax.jit(init_state, static_argnums=0, out_shardings=place)(method, train, config.seed),
        round=compile_round(method, plan),
        tally=evaluation,
    )


def compile_ahead(experiment: Experiment, state: State) -> tuple[Experiment, Memory]:
    """The experiment with its programs compiled, so that no round can compile again, and the memory they will take."""
    train, federation = experiment.train, experiment.federation
    # The types say Callable; until here they are jitted functions.
    programs: list[Any] = [experiment.round, experiment.tally]
    arguments = ((state, train), (state.server, state.clients, federation))
    round_, tally = (f.lower(*args).compile() for f, args in zip(programs, arguments, strict=True))
    memory = predict((round_, tally), (train, federation), state, experiment.config.devices)
    return experiment._replace(round=round_, tally=tally), memory


def state_shapes(experiment: Experiment) -> State:
    """The state's arrays without their numbers, as a checkpoint is read: shape, dtype and where they lie."""
    place = everywhere(make_execution(experiment.config)) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), jax.eval_shape(experiment.init)
    )


def evaluate(experiment: Experiment, state: State) -> Metrics:
    """The figures of a state."""
    tallies = experiment.tally(state.server, state.clients, experiment.federation)
    return measure(jax.device_get(tallies), experiment.data.domain_names)


def make_execution(config: Config) -> Execution:
    """How clients are run."""
    return Execution(config.client_axis, config.chunk, config.devices)


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
        batching=Batching(config.local_epochs, config.batch_size, config.drop_last),
        clients_per_round=config.clients_per_round,
        execution=make_execution(config),
        drop_nonfinite=config.drop_nonfinite,
    )


def describe(
    config: Config, data: Domains, target: str, method: Method, shapes: Variables, plan: Plan, clients: int
) -> dict[str, Any]:
    """What the summary says of an experiment before any training."""
    label_table(shapes, method.label)
    sizes = bytes_by_label(shapes, method.label)
    travelling = 0 if method.pooled else (plan.clients_per_round or clients) * (sizes["shared"] + sizes["personal"])
    return {
        "method": config.method,
        "dataset": config.data.name,
        "target": target,
        "seed": config.seed,
        "rounds": config.rounds,
        "clients": clients,
        "domains": list(data.domain_names),
        "model": config.model,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(shapes["params"])),
        "bytes_up_per_round": travelling,
        "bytes_down_per_round": travelling,
    }


def label_summary(experiment: Experiment) -> str:
    """How many variables and bytes carry each label, one line per label in use."""
    table = label_table(experiment.shapes, experiment.method.label)
    sizes = bytes_by_label(experiment.shapes, experiment.method.label)
    counts = {label: sum(word == label for word in table.values()) for label in sizes}
    return "\n".join(
        f"{label:9s}{counts[label]:4d} variables  {sizes[label]:12,d} bytes" for label in sizes if counts[label]
    )


def histogram(experiment: Experiment) -> str:
    """Training labels per client."""
    data = experiment.data
    return label_histogram(
        data.labels, experiment.parts.train, data.class_names, domains=data.domains, domain_names=data.domain_names
    )


def images_per_round(experiment: Experiment) -> float:
    """Training images a round goes through, on average where clients are drawn."""
    counts = np.asarray(experiment.train.train.length)
    size = experiment.config.batch_size
    seen = counts // size * size if experiment.config.drop_last else counts
    share = (experiment.config.clients_per_round or len(counts)) / len(counts)
    return float(seen.sum() * experiment.config.local_epochs * share)


class Progress(NamedTuple):
    """Where training has come to after a round: its record, the state, and how long the round took."""

    record: Record
    state: State
    seconds: float


def train(experiment: Experiment, state: State) -> Iterator[Progress]:
    """Rounds from `state` to the configured number, one `Progress` each.

    Args:
      experiment: what to train.
      state: where to start. Its buffers are used up, and so are those of each state once the next round begins.

    Raises:
      UserError: a client's update is not finite and the config does not say to leave such a client out.
    """
    config = experiment.config
    for done in range(int(state.round) + 1, config.rounds + 1):
        begin = time.perf_counter()
        state, info = experiment.round(state, experiment.train)
        info = jax.device_get(info)
        seconds = time.perf_counter() - begin
        if not (config.drop_nonfinite or info.finite.all()):
            raise not_finite(info, done)
        record = round_record(done, info)
        if done % config.eval_every == 0 or done == config.rounds:
            record |= evaluate(experiment, state)._asdict()
        yield Progress(record, state, seconds)


def round_record(round_: int, info: RoundInfo) -> Record:
    """One line of `metrics.jsonl`: losses and aggregation weights of the clients that took part."""
    dropped = [int(who) for who, fine in zip(info.participants, info.finite, strict=True) if not fine]
    return {
        "round": round_,
        "train_loss": float(np.mean(info.loss[info.finite])) if info.finite.any() else None,
        "client_loss": as_plain(info.loss),
        "participants": as_plain(info.participants),
        **({"dropped": dropped} if dropped else {}),
        **{
            f"coefficients/{jax.tree_util.keystr(path, simple=True, separator='/')}": as_plain(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(info.coefficients)
        },
    }


def as_plain(values: PyTree) -> list[Any]:
    """An array as a JSON list; what is not finite as None, since JSON has no word for it."""
    return [v if np.isfinite(v) else None for v in np.asarray(values).tolist()]


def not_finite(info: RoundInfo, round_: int) -> UserError:
    """The error for a client that diverged."""
    client = int(info.participants[int(np.argmin(info.finite))])
    return UserError(
        f"client {client} sent an update with NaN or infinity in round {round_}; expected finite numbers; lower "
        "method.client_learning_rate, or set --config.drop_nonfinite=True to leave such a client out of the round"
    )
