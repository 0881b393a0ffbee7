"""FedADG: the official code's losses and gradients, FedAvg without its weight, and what stays where."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedadg import adversarial_losses
from fdgjax.models.adversary import Adversary
from fdgjax.utils.variables import flatten, unflatten
from tests.toys import build, close, flat, make_case, make_plan, shared_case, shared_method, toy_federation

pytestmark = pytest.mark.slow

WHOLE = make_plan(drop_nonfinite=True)


def test_the_official_losses_and_gradients() -> None:
    """Haoxiang-Wang/FedADG, 1d34f2a, `pacs-ours`: its networks with fewer units and the three losses of `train_step`
    at the same parameters, in float64; the generator's and the discriminator's gradients are each its own loss's."""
    with np.load(Path(__file__).parents[1] / "conformance" / "fedadg.npz") as found:
        numbers = {name: jnp.asarray(values, jnp.float32) for name, values in found.items()}
    params = unflatten({name: leaf for name, leaf in numbers.items() if "/" in name and not name.startswith("grad")})
    features = numbers["features"]
    network = Adversary(features.shape[1], numbers["discriminator_in/bias"].shape[0])

    @jax.jit
    def gradients(features: jax.Array, params: dict) -> tuple:
        def losses(features: jax.Array, params: dict) -> tuple:
            return adversarial_losses(
                network, params, features, numbers["noise"], numbers["onehot"], jnp.ones(len(features))
            )

        of_features = jax.grad(lambda f: losses(f, params)[0] + losses(f, params)[1])(features)
        of_params = jax.grad(lambda p: losses(features, p)[0] + losses(features, p)[1])(params)
        return losses(features, params), of_features, of_params

    (far, adversarial), of_features, of_params = gradients(features, params)
    np.testing.assert_allclose(far, numbers["loss_features"], rtol=1e-5)
    np.testing.assert_allclose(adversarial, numbers["loss_discriminator"] + numbers["loss_generator"], rtol=1e-5)
    np.testing.assert_allclose(of_features, numbers["gradient_features"], atol=1e-6)
    assert len(flatten(of_params)) == 9
    for name, gradient in flatten(of_params).items():
        np.testing.assert_allclose(gradient, numbers[f"gradient/{name}"], atol=1e-6, err_msg=name)


def test_without_its_weight_it_is_fedavg() -> None:
    fedavg = shared_case("fedavg", plan=WHOLE).advance(3).server.variables
    for chosen, same in (({"weight": 0.0}, True), ({}, False)):
        case = make_case(build("fedadg", toy_federation(), **chosen))
        state = case.advance(3)
        predicting = case.method.predict(state.server, None)
        if same:
            close(predicting, fedavg)
        assert same or not np.allclose(flat(predicting), flat(fedavg), atol=1e-5)


def test_the_generator_travels_and_the_discriminator_stays() -> None:
    method = shared_method("fedadg")
    sent = {path.split("/")[2] for path in flatten(traffic(method, toy_federation()).sent) if "adversary" in path}
    assert sent == {"generator_in", "generator_out"}
    state = shared_case("fedadg", plan=WHOLE).advance(1)
    kernels = np.asarray(state.clients.local["params"]["adversary"]["discriminator_in"]["kernel"])
    assert not np.allclose(kernels[0], kernels[1], atol=1e-6)
