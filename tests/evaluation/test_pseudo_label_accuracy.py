"""Figures of pseudo-labels, by hand."""

import jax.numpy as jnp
import numpy as np

from fdgjax.contract import PseudoLabels
from fdgjax.data.federation import Rows
from fdgjax.evaluation.pseudo_label_accuracy import pseudo_label_figures
from tests.toys import round_info


def test_figures_are_over_the_samples_of_those_who_took_part() -> None:
    rows = Rows(jnp.asarray([[0, 1, 2], [3, 4, 0], [5, 0, 0]]), jnp.asarray([3, 2, 1]))
    labels = np.asarray([0, 1, 2, 0, 1, 2])
    # Clients 2 and 0; padding is right by chance and must not count.
    guess = PseudoLabels(
        jnp.asarray([[2, 0, 0], [0, 1, 0]]),
        jnp.asarray([[0.5, 1.0, 1.0], [0.9, 0.6, 0.4]]),
        jnp.asarray([[0.0, 1.0, 1.0], [1.0, 0.5, 1.0]]),
    )
    info = round_info([2, 0], pseudo_labels=guess)
    got = pseudo_label_figures(info, rows, labels)
    assert got["client_pseudo_label_accuracy"] == [1.0, 2 / 3]
    wanted = {"accuracy": 3 / 4, "confidence": 2.4 / 4, "trust": 2.5 / 4, "trusted_accuracy": 1.5 / 2.5}
    for name, value in wanted.items():
        np.testing.assert_allclose(got[f"pseudo_label_{name}"], value, rtol=1e-6)


def test_no_guess_no_figures() -> None:
    info = round_info([0])
    assert pseudo_label_figures(info, Rows(jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32)), np.zeros(1)) == {}
