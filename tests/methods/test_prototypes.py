"""FedProto and FPL: the official codes' prototypes, clusters and losses; Local and FedAvg without their weights."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.aggregation.first_neighbours import cluster_means, cluster_shares, first_neighbour_clusters
from fdgjax.contract import Batch, Context, PseudoLabels, Samples
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedproto import mean_prototypes, prototype_distance
from fdgjax.methods.fpl import Clusters, prototype_losses
from fdgjax.methods.parts.prototypes import Prototypes
from fdgjax.methods.parts.pseudo_labelled import labelled_by
from fdgjax.utils.variables import bytes_of
from tests.toy_models import tiny_model
from tests.toys import build, close, flat, make_case, make_plan, row, shared_case, shared_method, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    """Made by WenkeHuang/RethinkFL, 74201b3 (`models/fpl.py`, `utils/finch.py`), and yuetan031/FedProto, 97e42e2
    (`lib/utils.py`, `lib/update.py`), in float64: prototypes of nine clients and four classes, of which some lack some
    and all lack the last, and the losses of ten samples."""
    with np.load(Path(__file__).parents[1] / "conformance" / "prototypes.npz") as found:
        return {name: np.asarray(found[name]) for name in found}


def batch_of(numbers: dict[str, Any]) -> Batch:
    labels = jnp.asarray(numbers["labels"], jnp.int32)
    return Batch(jnp.zeros((len(labels), 1)), labels, jnp.ones(len(labels)))


@pytest.fixture(scope="module")
def clusters(numbers: dict[str, Any]) -> tuple[Clusters, np.ndarray]:
    """FPL's clusters, and which clients are of one, `[classes, clients, clients]`."""

    @jax.jit
    def compute(prototypes: jax.Array, there: jax.Array) -> tuple[Clusters, jax.Array]:
        same = jax.vmap(first_neighbour_clusters, 1)(prototypes, there)
        means = jax.vmap(cluster_means, (1, 0), 1)(prototypes, same)
        return Clusters(means, jax.vmap(cluster_shares, 0, 1)(same)), same

    return compute(jnp.asarray(numbers["prototypes"], jnp.float32), jnp.asarray(numbers["there"] > 0))


@pytest.mark.slow
def test_the_clusters_are_the_official_ones(numbers: dict[str, Any], clusters: tuple[Clusters, np.ndarray]) -> None:
    (means, shares), same = jax.tree.map(np.asarray, clusters)
    for kind in range(3):
        found = np.unique(means[shares[:, kind] > 0, kind].round(5), axis=0)
        wanted = np.unique(numbers[f"clusters_{kind}"].round(5), axis=0)
        np.testing.assert_allclose(found, wanted, atol=2e-5)
        np.testing.assert_allclose(shares[:, kind].sum(), len(wanted), rtol=1e-6)
    assert not shares[:, 3].any()
    assert not same[3].any()


def test_fpls_losses_are_the_official_ones(numbers: dict[str, Any], clusters: tuple[Clusters, np.ndarray]) -> None:
    def loss(features: jax.Array) -> jax.Array | int:
        return sum(prototype_losses(features, batch_of(numbers), clusters[0], float(numbers["temperature"])))

    found, gradient = jax.jit(jax.value_and_grad(loss))(jnp.asarray(numbers["features"], jnp.float32))
    np.testing.assert_allclose(found, numbers["fpl_loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, numbers["fpl_gradient"], atol=1e-5)


@pytest.mark.slow
def test_fedprotos_loss_is_the_official_one(numbers: dict[str, Any]) -> None:
    sent = Prototypes(jnp.asarray(numbers["prototypes"], jnp.float32), jnp.asarray(numbers["there"], jnp.float32))
    nothing_known = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), sent)
    known = mean_prototypes(nothing_known, sent._replace(counts=3 * sent.counts), jnp.ones(len(sent.counts)), True)
    np.testing.assert_allclose(known.features, numbers["fedproto_means"], atol=1e-6)
    features = jnp.asarray(numbers["features"], jnp.float32)
    found, gradient = jax.value_and_grad(prototype_distance)(features, batch_of(numbers), known)
    np.testing.assert_allclose(found, numbers["fedproto_loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient, numbers["fedproto_gradient"], atol=1e-6)


@pytest.mark.slow
def test_a_first_round_has_no_prototypes_and_no_term() -> None:
    for name, base in (("fedproto", "local"), ("fpl", "fedavg")):
        mine, other = (shared_case(one, plan=WHOLE).advance(1) for one in (name, base))
        close((mine.server.base, mine.clients), (other.server, other.clients))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "base", "chosen"),
    [("fedproto", "local", {"weight": 0.0}), ("fpl", "fedavg", {"contrast": 0.0, "regularisation": 0.0})],
)
def test_without_its_weights_it_is_local_or_fedavg(name: str, base: str, chosen: dict[str, float]) -> None:
    other = shared_case(base, plan=WHOLE).advance(3)
    bare = make_case(build(name, toy_federation(), **chosen)).advance(3)
    close((bare.server.base, bare.clients), (other.server, other.clients))
    pulled = shared_case(name, plan=WHOLE).advance(3)
    assert not np.allclose(flat((pulled.server.base, pulled.clients)), flat((other.server, other.clients)), atol=1e-5)


@pytest.mark.slow
def test_prototypes_are_mean_features_of_a_class_and_clients_count_by_their_samples() -> None:
    """Over the round's clients, the weighted means of class means are means over all their samples."""
    case, federation = shared_case("fedproto", plan=WHOLE), toy_federation()
    start, state = case.start(), case.advance(1)
    model = shared_method("fedproto").predict(start.server, jax.tree.map(lambda leaf: leaf[0], start.clients))
    assert bytes_of(traffic(case.method, federation).message) == sum(4 * leaf.size for leaf in state.server.more)
    features, labels = features_of(model, federation)
    for kind in range(len(state.server.more.counts)):
        wanted = features[labels == kind]
        assert state.server.more.counts[kind] == len(wanted)
        np.testing.assert_allclose(state.server.more.features[kind], wanted.mean(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_sample_whose_label_has_no_weight_is_in_no_prototype() -> None:
    method, federation, start = shared_method("fedproto"), toy_federation(), shared_case("fedproto", plan=WHOLE).start()
    client = row(start.clients, 0)
    sent = method.send(start.server, client)
    context = Context(sent, client, method.start(sent, client), jnp.int32(0))

    @jax.jit
    def prototypes(places: jax.Array, length: int, weight: jax.Array) -> Prototypes:
        samples = samples_of(LocalData(federation, places, jnp.int32(length)), 4)
        labels = PseudoLabels(federation.labels[places], jnp.ones_like(weight), weight)
        assert method.prepare is not None
        return method.prepare(context, Samples(samples.mask, labelled_by(labels, samples.each))).aux

    places, trusted = federation.train.places[3], jnp.arange(9) % 3 > 0
    close(prototypes(places, 9, trusted.astype(jnp.float32)), prototypes(places[trusted], 6, jnp.ones(6)))


def features_of(variables: Any, federation: Any) -> tuple[np.ndarray, np.ndarray]:
    """The features and labels of all training samples, under a model."""
    places = np.concatenate([row[:n] for row, n in zip(*map(np.asarray, federation.train), strict=True)])
    images = np.asarray(federation.inputs)[places].astype(np.float32) / 127.5 - 1
    output, _ = tiny_model(method="fedproto").apply(variables, jnp.asarray(images), False, jax.random.key(0))
    return np.asarray(output.features), np.asarray(federation.labels)[places]
