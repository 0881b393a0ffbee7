"""The result of training: figures, records and models."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fdgjax.config import Config
from fdgjax.contract import Variables
from fdgjax.data.sources.arrays import channels_first
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import State
from fdgjax.evaluation.metrics import Record, last_evaluated, short_names
from fdgjax.experiments import Experiment
from fdgjax.inference.classifier import (
    UNSEEN,
    Classifier,
    classifier_of,
    client_number,
    features_of,
    in_compiled_batches,
    probabilities_of,
)
from fdgjax.inference.trained_run import TrainedRun, of_seed, unstacked
from fdgjax.methods import METHODS
from fdgjax.methods.parts.requirements import FEATURES
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


@dataclasses.dataclass(frozen=True)
class Result:
    """A trained experiment.

    built: what was trained, see `fdgjax.experiments.Experiment`.
    state: the state after the last round, or after the one that `open_run` was asked for, with a leading seed axis if
      there are several seeds.
    seed_records: for each seed, the records of its rounds.
    summary: the figures, as in `summary.json`; empty if training was stopped before its last round.
    workdir: the run's folder; None if trained in memory. programs: the compiled prediction functions.
    """

    built: Experiment
    state: State
    seed_records: Sequence[Sequence[Record]]
    summary: Mapping[str, Any]
    workdir: Path | None
    programs: dict[Any, Callable[[jax.Array], jax.Array]] = dataclasses.field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        config, round_ = self.config, int(np.ravel(jax.device_get(self.state.round))[0])
        last = last_evaluated(self.records[:round_])
        shown = "  ".join(f"{name} {last[key]:.3f}" for key, name in short_names().items() if key in last)
        return f"<fdgjax result: {config.method.name} on {config.data.name}, round {round_}: {shown}>"

    @property
    def config(self) -> Config:
        """All keys with their values."""
        return self.built.config

    @property
    def finished(self) -> bool:
        """Whether the last round was trained."""
        return len(self.records) == self.config.rounds

    @property
    def records(self) -> Sequence[Record]:
        """The first seed's record of each round; `seed_records` has those of all seeds."""
        return self.seed_records[0]

    @property
    def evaluated(self) -> Record:
        """The first seed's record of the last evaluated round; empty if none was evaluated."""
        return last_evaluated(self.records)

    @property
    def data(self) -> Domains:
        """The samples with their labels and domains, `fdgjax.data.sources.domains.Domains`."""
        return self.built.data

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, indexed by the numbers that `predict` returns."""
        return self.built.data.class_names

    @property
    def domain_names(self) -> tuple[str, ...]:
        """The names of the domains."""
        return self.built.data.domain_names

    def predict(
        self, samples: Any, *, domain: str | None = None, client: int | str | None = None, seed: int | None = None
    ) -> np.ndarray:
        """The class of each sample, int64 `[n]`, or of a regression its number, float32 `[n]`, in the label's unit;
        arguments and errors as for `predict_proba`."""
        if self.data.numeric:
            return self.computed(probabilities_of, samples, domain, client, seed)[:, 0]
        return self.predict_proba(samples, domain=domain, client=client, seed=seed).argmax(axis=1)

    def predict_proba(
        self, samples: Any, *, domain: str | None = None, client: int | str | None = None, seed: int | None = None
    ) -> np.ndarray:
        """The probabilities of the classes for each sample, float32 `[n, classes]`.

        Args:
          samples: as those trained on: images uint8 `[n, H, W, channels]` of the same size, or float32 `[n, ...]` of
            the same shape, in a table NaN where a value is missing, and a category's index.
          domain: selects the model of the client that holds this domain; None, or the unseen domain, selects the model
            for unseen domains (if there are several, their probabilities are averaged).
          client: selects the model of this client, by its number, from 0, or its name; needed if several clients hold
            a domain.
          seed: one of the experiment's seeds; None for the first.

        Raises:
          UserError: samples of another type or size, an unknown domain, client or seed, a method without labels, or a
            regression.
        """
        config = self.config
        if self.data.numeric:
            raise UserError(
                f"config.task is {config.task}, which has no classes with probabilities; expected predict()"
            )
        if METHODS[config.method.name].unlabelled:
            raise UserError(f"'{config.method.name}' learns without labels and knows no classes; expected features()")
        return self.computed(probabilities_of, samples, domain, client, seed)

    def features(
        self, samples: Any, *, domain: str | None = None, client: int | str | None = None, seed: int | None = None
    ) -> np.ndarray:
        """The input of the model's last layer for each sample, `[n, m]`; arguments as for `predict_proba`. If there are
        several models for an unseen domain, the features are the first model's.

        Raises:
          UserError: a network that sows no features, or like `predict_proba`.
        """
        found = self.computed(features_of, samples, domain, client, seed)
        if not found.shape[-1]:
            raise UserError(f"the model '{self.config.model.name}' sows no features; expected {FEATURES.remedy}")
        return found

    def variables(
        self, *, domain: str | None = None, client: int | str | None = None, seed: int | None = None
    ) -> list[Variables]:
        """The Flax variables of each predicting model, without those of frozen stages: one model for a client; for
        unseen domains one or, with some methods, several. Arguments as for `predict_proba`."""
        return unstacked(self.classifier(domain, client, seed).models)

    def computed(
        self,
        of: Callable[[Classifier], Callable[[jax.Array], jax.Array]],
        samples: Any,
        domain: str | None,
        client: int | str | None,
        seed: int | None,
    ) -> np.ndarray:
        """Applies a classifier's function to samples; it is compiled at the first call for each model."""
        found, key = self.checked(samples), (of, domain, client, seed)
        if key not in self.programs:
            self.programs[key] = jax.jit(of(self.classifier(domain, client, seed)))
        computed: np.ndarray = in_compiled_batches(self.programs[key], found)
        return computed

    def classifier(
        self, domain: str | None = None, client: int | str | None = None, seed: int | None = None
    ) -> Classifier:
        """The predicting models as a `Classifier`; arguments as for `predict_proba`."""
        trained = of_seed(self.built, self.state, self.seed_records, seed)
        return classifier_of(trained, client_of(trained, domain, client))

    def checked(self, samples: Any) -> np.ndarray:
        """The samples as an array of the type that is stored; raises like `predict_proba`."""
        data = self.built.data
        if np.ma.is_masked(samples):
            raise UserError("samples got a masked array with masked values; expected values; fill or remove them")
        found, shape, kind = np.asarray(samples), list(data.inputs.shape[1:]), data.inputs.dtype
        if not data.images and (np.issubdtype(found.dtype, np.number) or found.dtype == bool):
            with np.errstate(over="ignore"):
                found = found.astype(np.float32)
        if found.dtype != kind or list(found.shape[1:]) != shape or not len(found):
            raise UserError(
                f"{'images' if data.images else 'samples'} got {found.dtype} {list(found.shape)}; expected {kind} "
                f"[n, {', '.join(map(str, shape))}], as those trained on{channels_first(found.shape)}"
            )
        # In a table NaN stands for a missing value.
        if not (data.images or data.columns or np.isfinite(found).all()):
            count = int((~np.isfinite(found)).sum())
            raise UserError(f"samples got {count:,} numbers that are not finite; expected finite ones")
        return found


def client_of(trained: TrainedRun, domain: str | None, client: int | str | None) -> int:
    """The number of the selected client, or `UNSEEN`; see `Result.predict_proba`."""
    data, count = trained.experiment.data, trained.clients
    if client is not None and domain is not None:
        raise UserError(f"client got {client} beside the domain '{domain}'; expected one of them")
    if client is not None:
        return client_number(trained, client, "client")
    if domain is None or domain == trained.experiment.facts["target"]:
        return UNSEEN
    lookup("domain", domain, dict.fromkeys(data.domain_names))
    index = data.domain_names.index(domain)
    holders = [number for number, rows in enumerate(trained.parts.train) if index in data.domains[rows]]
    if len(holders) != 1:
        raise UserError(
            f"domain got '{domain}', which {len(holders)} clients hold; expected client=, a number from 0 to "
            f"{count - 1}"
        )
    return holders[0]
