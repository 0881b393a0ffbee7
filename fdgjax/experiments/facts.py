"""The entries of a run's summary that are known before training."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fdgjax.config import Config, ModelConfig
from fdgjax.config.privacy import Protection
from fdgjax.data.federation import Partition
from fdgjax.data.groups import one_of_each
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.protocol_parts import SplitSpec, unseen_samples
from fdgjax.data.sources.domains import Domains
from fdgjax.engine.traffic import Traffic
from fdgjax.models.frozen import Trunk
from fdgjax.utils.variables import bytes_of


def method_facts(config: Config) -> dict[str, Any]:
    """The entries of the summary on the method and its protocol."""
    return {
        "method": config.method.name,
        **({"task": config.task} if TASKS[config.task].numeric else {}),
        "dataset": config.data.name,
        "protocol": config.data.protocol,
        "seed": config.seed,
        "rounds": config.rounds,
    }


def model_facts(model: ModelConfig) -> dict[str, Any]:
    """The model's name, and its settings that differ from the defaults."""
    own = dataclasses.asdict(ModelConfig(model.name))
    chosen = dataclasses.asdict(model)
    return {"model": model.name} | {key: value for key, value in chosen.items() if value != own[key]}


def split_facts(data: Domains, how: SplitSpec, part: Partition) -> dict[str, Any]:
    """The entries of the summary on who holds which domain: the target, '' for none, the share of its largest
    class among those that may be tested on, the server's domain if it has one, excluded ones if there are any, and the
    clients' names if they have any; and what samples are called if they are no images."""
    tested = None if data.numeric or not how.target else np.bincount(data.labels[unseen_samples(data, how)[0]])
    return {
        **({} if data.images else {"samples": "rows" if data.columns else "samples"}),
        "target": how.target,
        **({} if tested is None else {"target_majority": float(tested.max() / tested.sum())}),
        **({"server": how.server} if how.server else {}),
        **({"excluded": list(how.excluded)} if how.excluded else {}),
        "clients": len(part.train),
        **({"client_names": names} if (names := client_names(data, [part])) else {}),
    }


def owner_names(data: Domains, part: Partition) -> list[str]:
    """The names of the clients, in the order of their numbers, where the data say whose each sample is; else none."""
    return [] if data.owners is None else [data.owners.names[data.owners.numbers[rows[0]]] for rows in part.train]


def client_names(data: Domains, parts: Sequence[Partition]) -> list[str]:
    """The names of the clients, in the order of their numbers: of their owners, or of the one domain that each holds
    alone. None if clients are others, or are not the same with every seed.

    Args:
      data: the data. parts: each seed's split of them.
    """
    each = [owner_names(data, part) or held_alone(data, part) for part in parts]
    return each[0] if all(names == each[0] for names in each) else []


def held_alone(data: Domains, part: Partition) -> list[str]:
    """The domain of each client, where each has one that no other has; else none. Shots of the target, which are no
    validation samples, do not count."""
    each = [np.unique(data.domains[rows]) for rows in part.validation]
    alone = len(np.unique(np.concatenate(each))) == len(each) and all(len(own) == 1 for own in each)
    return [data.domain_names[int(own[0])] for own in each] if alone else []


def image_facts(data: Domains, part: Partition) -> dict[str, Any]:
    """How many images are behind a seed's accuracies, for their intervals.

    Figures of numbers have no binomial error, and no `test_images`.

    `images_by_domain`: behind each domain's (`Metrics.per_domain_accuracy`), the held-out ones of all clients together,
    or those of the unseen domain. `test_images`: behind each other figure, for its binomial error `sqrt(p (1 - p) / n)`
    for a share p; of a mean over K clients with n_k images each `K^2 / sum_k 1 / n_k`, exact for equal accuracies. Of
    grouped samples `test_images` counts each group as one, and `groups_by_domain` has the number of groups.
    """
    held = part.test if any(map(len, part.test)) else part.validation
    shown = np.concatenate([*held, part.target])
    validation, test = ([one_of_each(own, data.groups) for own in rows] for rows in (part.validation, part.test))
    counts = {
        "id_accuracy": mean_of_clients(validation),
        "ood_accuracy": float(len(one_of_each(part.target, data.groups))),
        "all_accuracy": float(sum(map(len, test))),
        "avg_accuracy": mean_of_clients(test),
    }
    grouped = {} if data.groups is None else {"groups_by_domain": by_domain(data, one_of_each(shown, data.groups))}
    return {
        "images_by_domain": by_domain(data, shown),
        **grouped,
        **({} if data.numeric else {"test_images": {figure: count for figure, count in counts.items() if count}}),
    }


def by_domain(data: Domains, rows: np.ndarray) -> dict[str, int]:
    """The number of rows of each domain that has any."""
    counted = np.bincount(data.domains[rows], minlength=len(data.domain_names))
    return {name: int(n) for name, n in zip(data.domain_names, counted, strict=True) if n}


def mean_of_clients(samples: Sequence[np.ndarray]) -> float:
    """The number of images of one client whose accuracy has the error of the mean over clients; see `image_facts`."""
    return mean_of_sizes([len(each) for each in samples if len(each)])


def mean_of_sizes(sizes: Sequence[int]) -> float:
    """The same, from each client's number of images; 0 for none."""
    return len(sizes) ** 2 / sum(1 / size for size in sizes) if sizes else 0.0


def frozen_facts(trunk: Trunk | None) -> dict[str, Any]:
    """The number of frozen parameters, if any."""
    return {} if trunk is None else {"frozen_parameters": sum(map(np.size, jax.tree.leaves(trunk.variables["params"])))}


def privacy_facts(config: Config, protected: Protection | None) -> dict[str, Any]:
    """Who is protected, the privacy cost of all rounds, and the noise; empty if nobody is protected."""
    if protected is None:
        return {}
    return {
        "privacy_unit": config.privacy.unit,
        "privacy_epsilon": protected.epsilon(config.rounds),
        "privacy_delta": config.privacy.delta,
        "privacy_clip": config.privacy.clip,
        "privacy_noise": protected.round.noise,
    }


def bytes_per_round(travelling: Traffic, clients: int) -> dict[str, int]:
    """The bytes that all clients of a round send (up) and receive (down)."""
    return {
        "bytes_up_per_round": clients * bytes_of(travelling.message),
        "bytes_down_per_round": clients * bytes_of(travelling.sent),
    }
