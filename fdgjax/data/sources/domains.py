"""A decoded data set: images with a label and a domain each."""

from typing import NamedTuple

import numpy as np


class Domains(NamedTuple):
    """Labelled images of several domains, in one set of arrays.

    Attributes:
      inputs: uint8 `[samples, height, width, channels]`, memory-mapped and read-only.
      labels: int32 `[samples]`, index into `class_names`.
      domains: int32 `[samples]`, index into `domain_names`.
      domain_names: the domains, in the data set's own order.
      class_names: the classes, in the order of the labels.
    """

    inputs: np.ndarray
    labels: np.ndarray
    domains: np.ndarray
    domain_names: tuple[str, ...]
    class_names: tuple[str, ...]

    def majority(self, domain: str) -> float:
        """The share of a domain's most frequent class: the accuracy of a model that predicts it for every image."""
        of_domain = self.labels[self.domains == self.domain_names.index(domain)]
        return float(np.bincount(of_domain).max() / len(of_domain))
