"""FedSR's regularisers against NumPy in float64 and the official code's numbers."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.methods.fedsr import from_references
from fdgjax.objectives import gaussian_divergence, mean_length, mean_squared_length


@pytest.mark.slow
def test_the_official_codes_numbers(conformance: Path) -> None:
    data = np.load(conformance / "fedsr_regularisers.npz")
    references = {"reference_mean": data["r_mu"], "reference_deviation": data["r_sigma_raw"], "scale": data["c"]}
    representation = {"mean": data["z_mu"], "deviation": data["z_sigma"]}
    divergences = from_references(
        jax.tree.map(jnp.asarray, references), jax.tree.map(jnp.asarray, representation), jnp.asarray(data["y"])
    )
    np.testing.assert_allclose(jnp.mean(divergences), data["cmi"], rtol=1e-5)
    np.testing.assert_allclose(mean_length(jnp.asarray(data["z"]), jnp.ones(len(data["z"]))), data["l2r"], rtol=1e-6)


@pytest.mark.slow
def test_lengths_of_the_unmasked_samples() -> None:
    z, mask = jnp.asarray([[3.0, 4.0], [0.0, 0.0], [1e3, 1e3]]), jnp.asarray([1.0, 1.0, 0.0])
    assert float(mean_length(z, mask)) == pytest.approx(2.5)
    assert float(mean_squared_length(z, mask)) == pytest.approx(12.5)
    # A representation of zero length has no direction to shrink in.
    np.testing.assert_allclose(jax.grad(mean_length)(z, mask), [[0.3, 0.4], [0.0, 0.0], [0.0, 0.0]], atol=1e-6)


def test_the_divergence_of_gaussians_is_the_mean_difference_of_their_log_densities() -> None:
    rng = np.random.default_rng(0)
    mean, other = rng.normal(size=(2, 3, 4))
    deviation, other_deviation = rng.uniform(0.5, 2, size=(2, 3, 4))
    # Gauss-Hermite nodes integrate the difference, a polynomial of degree two, without error.
    nodes, shares = np.polynomial.hermite_e.hermegauss(5)
    x = mean[..., None] + deviation[..., None] * nodes
    density = lambda m, s: -((x - m[..., None]) ** 2) / (2 * s[..., None] ** 2) - np.log(s[..., None])  # noqa: E731
    expected = (density(mean, deviation) - density(other, other_deviation)) @ (shares / shares.sum())
    arguments = (jnp.asarray(a, jnp.float32) for a in (mean, deviation, other, other_deviation))
    np.testing.assert_allclose(gaussian_divergence(*arguments), expected.sum(1), rtol=1e-5)
    same = jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32)
    np.testing.assert_allclose(gaussian_divergence(*same, *same), 0, atol=1e-6)
