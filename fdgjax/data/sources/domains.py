"""A data set in memory: samples with a label and a domain each."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.data.columns import Column
from fdgjax.data.given_splits import Splits, splits_of
from fdgjax.data.groups import numbered
from fdgjax.data.owners import Owners, owners_of


class Domains(NamedTuple):
    """Labelled samples of several domains, in one set of arrays.

    Attributes:
      inputs: images uint8 `[samples, height, width, channels]`, memory-mapped and read-only; or float32
        `[samples, ...]`, of a table `[samples, columns]` with NaN for missing values and indices for categories.
      labels: int32 `[samples]`, index into `class_names`; or numbers, float32 `[samples]`.
      domains: int32 `[samples]`, index into `domain_names`.
      domain_names: the domains, in the data set's own order.
      class_names: the classes, in the order of the labels; of numbers, the label's only name.
      columns: those of a table; () for other data.
      groups: int32 `[samples]`, which samples are alike and stay together in every split, such as a patient's; each is
        of one domain. None for samples that are not grouped.
      splits: what each sample is for, where the data say it; None where samples are held out at random.
      owners: which client has each sample, where the data say it; None where samples are dealt to clients.
    """

    inputs: np.ndarray
    labels: np.ndarray
    domains: np.ndarray
    domain_names: tuple[str, ...]
    class_names: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    groups: np.ndarray | None = None
    splits: Splits | None = None
    owners: Owners | None = None

    @property
    def images(self) -> bool:
        """Whether the samples are images."""
        return bool(self.inputs.dtype == np.uint8)

    @property
    def numeric(self) -> bool:
        """Whether labels are numbers."""
        return bool(self.labels.dtype == np.float32)

    def said(self, words: Mapping[str, Sequence[str]]) -> "Domains":
        """The data set with what is said of each sample by a word: its `groups`, `splits` and `owners`, or some."""
        groups, splits, owners = (words.get(field) for field in ("groups", "splits", "owners"))
        return self._replace(
            groups=self.groups if groups is None else numbered(self.domains, groups),
            splits=self.splits if splits is None else splits_of(splits),
            owners=self.owners if owners is None else owners_of(owners),
        )
