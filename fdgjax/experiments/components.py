"""The pieces of an experiment, each made from its config: devices, split, model, method and plan."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from jax.sharding import Mesh

from fdgjax.config import Config, seeds_of, split_seed_of
from fdgjax.config.robustness import attack_of, defence_of
from fdgjax.contract import Method, Setup
from fdgjax.data.augmentations.training import augmentation
from fdgjax.data.federation import Federation, Partition, pool, without_labels
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import Protocol
from fdgjax.engine import CLIENT_AXES, Execution, RoundPlan, split_for, suitable_devices
from fdgjax.engine.batched_hyper import BatchedHyper, TracedNumber
from fdgjax.engine.clients import callers_mesh
from fdgjax.engine.devices import clients_per_device, drawn_rounds
from fdgjax.engine.local import Batching
from fdgjax.engine.robustness.attacks import check_attack, reads_labels
from fdgjax.engine.robustness.defences import check_defence
from fdgjax.engine.sharding import several_processes
from fdgjax.engine.traffic import sends_update
from fdgjax.evaluation.probability_figures import names_in
from fdgjax.methods import METHODS, Entry
from fdgjax.methods.parts.adaptations import adaptation_of
from fdgjax.methods.parts.evaluated_models import CLIENT_MODELS
from fdgjax.methods.parts.guarded import guarded_build
from fdgjax.methods.parts.pseudo_labelled import on_pseudo_labels
from fdgjax.utils.errors import UserError
from fdgjax.utils.process_memory import available_bytes
from fdgjax.utils.registry import lookup
from fdgjax.utils.words import words_of


def check_room(samples: np.ndarray) -> None:
    """Raises a `UserError` if a copy of the samples does not fit in the memory that is free."""
    needed, free = samples.nbytes, available_bytes()
    if free is not None and needed > free:
        raise UserError(
            f"{len(samples):,} samples need {needed / 2**20:,.0f} MiB of memory and {free / 2**20:,.0f} are free; "
            "expected fewer or smaller ones; set config.data.streaming=True to leave images on disk, or lower "
            "config.data.image_size"
        )


def choose_devices(
    config: Config, entry: Entry, parts: Sequence[Partition], data_bytes: int, step_flops: Callable[[], float]
) -> Config:
    """The config with the number of devices that suits the clients of a round, if the config leaves it open; each holds
    `data_bytes` of data. A CPU is split into devices first, unless JAX has started; step_flops: see `suitable_devices`,
    asked for only if the number is open, and without starting JAX."""
    if config.devices:
        return config
    rounds, free, flops = expected_rounds(config, parts), available_bytes(), step_flops()
    split_for(rounds, data_bytes, free, flops)
    trained = [np.ones(1, int)] if entry.pooled(config.method) else rounds
    return dataclasses.replace(config, devices=suitable_devices(trained, data_bytes, free, flops))


def expected_rounds(config: Config, parts: Sequence[Partition]) -> list[np.ndarray]:
    """The steps of the participants of rounds that stand for all, see `drawn_rounds`; parts: the split of each seed."""
    steps = [batching_of(config).steps(np.array([len(own) for own in split.train])) for split in parts]
    return drawn_rounds(steps, of_a_round(config, len(steps[0])))


def of_a_round(config: Config, clients: int) -> int:
    """How many of the clients take part in a round."""
    return min(config.clients_per_round or clients, clients)


def on_callers_mesh(config: Config) -> tuple[Config, Mesh | None]:
    """The config with as many devices as the mesh set by `jax.set_mesh`, and that mesh; without a mesh, the unchanged
    config and None.

    Raises:
      UserError: the config sets another number of devices; also raises like `callers_mesh`.
    """
    mesh = callers_mesh()
    if mesh is None:
        return config, None
    if config.devices not in (0, mesh.size):
        raise UserError(
            f"config.devices got {config.devices} and the mesh of jax.set_mesh has {mesh.size} devices; expected as "
            "many; leave config.devices out"
        )
    return dataclasses.replace(config, devices=mesh.size), mesh


def execution_of(config: Config, mesh: Mesh | None, slots: int = 0) -> Execution:
    """How clients and seeds are run; slots: see `Execution`."""
    return Execution(config.client_axis, config.chunk, config.devices, config.seed_axis, config.unroll, mesh, slots)


def slots_of(config: Config, entry: Entry, parts: Sequence[Partition]) -> int:
    """The most clients of a device if a round's clients are assigned by their steps, else 0. It depends on nothing but
    the config, its number of devices included, and the split, so that a resumed run has the same assignment.

    Clients that step together take equally many steps. Several processes have each client's images where
    `fdgjax.engine.sharding` puts them, in the clients' order.
    """
    alone = not lookup("client_axis", config.client_axis, CLIENT_AXES).together()
    if config.devices == 1 or entry.pooled(config.method) or several_processes() or not alone:
        return 0
    return clients_per_device(expected_rounds(config, parts), config.devices)


def check_method(config: Config, entry: Entry, protocol: Protocol) -> None:
    """Raises a `UserError` for a method that cannot be trained or evaluated with the protocol and the selection."""
    name = config.data.protocol
    if entry.protocol == "labelled_server" and not protocol.labelled_server:
        raise UserError(
            f"method '{entry.name}' needs a server with labelled data, but the protocol is '{name}'; expected "
            "config.data.protocol=labelled_server"
        )
    if entry.unlabelled and protocol.labelled_server:
        raise UserError(
            f"method '{entry.name}' learns without labels, but the protocol '{name}' has the server's labels trained "
            "on; expected leave_one_out or unseen_client"
        )
    if entry.unlabelled and not protocol.unseen:
        raise UserError(
            f"method '{entry.name}' is evaluated by a probe on an unseen domain, which the protocol '{name}' lacks; "
            "expected leave_one_out or unseen_client"
        )
    if entry.unlabelled and config.adaptation.kind not in ("own", "none"):
        raise UserError(
            f"config.adaptation.kind got '{config.adaptation.kind}', but method '{entry.name}' learns without labels "
            "and predicts no classes; expected own or none"
        )
    if entry.unlabelled and names_in(config.figures):
        raise UserError(
            f"config.figures got '{config.figures}', but method '{entry.name}' learns without labels and gives classes "
            "no probabilities; expected none"
        )
    if entry.unlabelled and config.selection != "last":
        raise UserError(
            f"config.selection got '{config.selection}', but method '{entry.name}' learns without labels and has "
            "no accuracy to select a round by; expected last"
        )


def split_spec(config: Config, protocol: Protocol, names: Sequence[str], seed: int) -> SplitSpec:
    """The specification of the split of one seed's run; `target` and `server` are '' if the protocol has none."""
    excluded = words_of(config.data.excluded)
    left = [name for name in names if name not in excluded]
    target = config.data.target or (left[0] if protocol.unseen and left else "")
    others = [name for name in left if name != target]
    return SplitSpec(
        target=target,
        server=config.data.server or (others[0] if protocol.labelled_server and others else ""),
        excluded=excluded,
        clients=config.data.clients,
        domains_per_client=config.data.domains_per_client,
        homogeneity=config.data.homogeneity,
        label_skew=config.data.label_skew,
        validation=config.data.validation,
        test=config.data.test,
        shots=config.data.shots,
        seed=split_seed_of(config, seed),
    )


def batching_of(config: Config) -> Batching:
    """How local data become augmented minibatches."""
    view = augmentation(config.data.augmentation, config.data.crop_size)
    return Batching(config.local_epochs, config.batch_size, config.drop_last, view)


def make_method(config: Config, entry: Entry, protocol: Protocol, setup: Setup, batching: Batching) -> Method:
    """The method, trained on pseudo-labels if it needs labels that clients do not have.

    Raises:
      UserError: the method and its entry disagree on whether data are pooled; or whatever the method raises.
    """
    build = entry.build if entry.name in METHODS.own else partial(guarded_build, entry)
    if protocol.labelled_server and entry.protocol != "labelled_server":
        method = on_pseudo_labels(build, setup, config.method, config.pseudo_labels, batching)
    else:
        method = build(setup, config.method)
    if method.pooled != entry.pooled(config.method):
        raise UserError(
            f"method '{entry.name}' has pooled={method.pooled}, but its Entry says {not method.pooled}; expected the "
            f"same, such as Entry(..., pooled=lambda h: {method.pooled})"
        )
    method = method._replace(adapt=adaptation_of(setup.model, config.adaptation, method.adapt))
    return CLIENT_MODELS[config.client_model](method)


def batch_hyper(config: Config, others: Sequence[Config], make: Callable[[Config], Method]) -> BatchedHyper | None:
    """The methods of configs that differ only in numbers, with a value of each number for every seed; None if all
    configs have the same numbers."""
    members = [member for member in (config, *others) for _ in seeds_of(member)]
    values = {
        field.name: tuple(float(getattr(member.method, field.name)) for member in members)
        for field in dataclasses.fields(config.method)
        if any(getattr(other.method, field.name) != getattr(config.method, field.name) for other in others)
    }

    def of(numbers: Mapping[str, TracedNumber]) -> Method:
        return make(dataclasses.replace(config, method=dataclasses.replace(config.method, **numbers)))

    return BatchedHyper(values, of) if values else None


def make_plan(
    config: Config, batching: Batching, execution: Execution, method: Method, federation: Federation
) -> RoundPlan:
    """How the rounds are executed, without an attack; of the federation's data, shapes count.

    Raises:
      UserError: more clients per round than train, or a defence that does not fit the method or the number of clients.
    """
    clients = len(federation.ids)
    if config.clients_per_round > clients:
        raise UserError(
            f"config.clients_per_round got {config.clients_per_round}, but only {clients} clients train; "
            f"expected at most {clients}, or 0 for all"
        )
    defence = defence_of(config.defence)
    if defence:
        updates = sends_update(method, federation)
        check_defence(defence, method, config.clients_per_round or clients, updates=updates)
    return RoundPlan(batching, config.clients_per_round, execution, config.drop_nonfinite, defence=defence)


def with_attack(
    plan: RoundPlan,
    config: Config,
    method: Method,
    federation: Federation,
    *,
    classes: int,
    images: bool,
    features: bool,
) -> RoundPlan:
    """The plan with the config's attack, on data of `classes` classes; images, features: as of `check_attack`, which it
    raises like."""
    attack = attack_of(config.attack, classes)
    if attack:
        unlabelled = not reads_labels(method, federation, plan.batching)
        updates = sends_update(method, federation)
        clients = len(federation.ids)
        check_attack(attack, clients, images=images, features=features, unlabelled=unlabelled, updates=updates)
        if attack.kind.share and config.privacy.unit == "sample" and 0 < attack.strength < 1:
            raise UserError(
                f"config.attack.strength got {attack.strength:g}, a share of a minibatch, but with config.privacy.unit="
                "sample the loss sees one sample at a time; expected 1, or config.privacy.unit=client"
            )
    return plan._replace(attack=attack)


def training_data(federations: Sequence[Federation], method: Method, protocol: Protocol) -> list[Federation]:
    """Each seed's training data: gathered at one client if the method pools data, without the clients' labels if only
    the server has labels."""
    gathered = [pool(one) if method.pooled else one for one in federations]
    return [without_labels(one) if protocol.labelled_server else one for one in gathered]
