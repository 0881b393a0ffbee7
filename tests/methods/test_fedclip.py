"""FedCLIP: the official code's gradients, the zero-shot classifier without an adapter, and what never moves."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.config import make_config, read_config
from fdgjax.contract import Batch, Context
from fdgjax.engine.privacy.noise import Privacy
from fdgjax.engine.traffic import traffic
from fdgjax.methods.fedclip import in_batch, read_embeddings
from fdgjax.models.adapter import AttentionAdapter
from fdgjax.nn import unit_length
from fdgjax.sweeps.choosing import why_unfit
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten
from tests.toy_models import CLASSES, FEATURES, IMAGE, tiny_model
from tests.toys import build, domains_of, make_case, make_plan, shared_case, toy_federation


@pytest.fixture
def embeddings(tmp_path: Path) -> tuple[str, np.ndarray]:
    """A file of class embeddings for the toy network, and what is in it."""
    found = np.random.default_rng(3).normal(size=(CLASSES, FEATURES))
    np.save(tmp_path / "classes.npy", found)
    return str(tmp_path / "classes.npy"), found


@pytest.mark.slow
def test_the_official_gradients_of_the_adapter() -> None:
    """microsoft/PersonalizedFL, 441670e: a step of `train` of `fed_at_clip.py` with encoders that return their input
    (images) or a row of a table (texts), SGD and learning rate 1."""
    with np.load(Path(__file__).parents[1] / "conformance" / "styles_and_adapter.npz") as found:
        numbers = {name: jnp.asarray(values) for name, values in found.items() if name.startswith(("adapter", "clip"))}
    layers = ("inner", "outer")
    params = {one: {kind: numbers[f"adapter_{one}_{kind}"] for kind in ("kernel", "bias")} for one in layers}
    batch = Batch(numbers["clip_images"], numbers["clip_labels"].astype(jnp.int32), jnp.ones(8))

    def loss(params: Any) -> jax.Array:
        adapted: Any = AttentionAdapter().apply({"params": params}, batch.inputs)
        return in_batch(100 * unit_length(adapted) @ unit_length(numbers["clip_texts"]).T, batch)

    gradients = jax.grad(loss)(params)
    for one in layers:
        for kind in ("kernel", "bias"):
            wanted = numbers[f"adapter_gradient_{one}_{kind}"]
            np.testing.assert_allclose(gradients[one][kind], wanted, rtol=1e-3, atol=2e-4, err_msg=f"{one} {kind}")


@pytest.mark.slow
def test_padding_is_no_part_of_the_contrast() -> None:
    logits, labels = jax.random.normal(jax.random.key(0), (5, 3)), jnp.asarray([0, 2, 1, 1, 0])
    whole = in_batch(logits[:3], Batch(jnp.zeros(3), labels[:3], jnp.ones(3)))
    padded = in_batch(logits, Batch(jnp.zeros(5), labels, jnp.asarray([1.0, 1.0, 1.0, 0.0, 0.0])))
    np.testing.assert_allclose(padded, whole, rtol=1e-6)


@pytest.mark.slow
def test_without_an_adapter_it_is_the_zero_shot_classifier_by_cosine(embeddings: tuple[str, np.ndarray]) -> None:
    file, texts = embeddings
    case = make_case(build("fedclip", toy_federation(), adapter=False, class_embeddings=file))
    start, images = case.start(), jax.random.uniform(jax.random.key(5), (9, 4, 4, 1), minval=-1)
    layer = jax.device_get(start.server.variables["params"]["linear_1"])
    features = np.maximum(np.asarray(images).reshape(9, -1) @ layer["kernel"] + layer["bias"], 0)
    norms = np.linalg.norm(features, axis=1, keepdims=True) * np.linalg.norm(texts, axis=1)
    cosines = features @ texts.T / norms
    for rounds in (0, 2):
        state = case.advance(rounds)
        output, _ = tiny_model(method="fedclip").apply(state.server.variables, images, False, jax.random.key(0))
        np.testing.assert_allclose(output.logits, 100 * cosines, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_only_the_adapter_moves() -> None:
    """Not the encoder, not its BatchNorm's statistics, not the embeddings."""
    case = shared_case("fedclip", "norm")
    before, after = (flatten(jax.device_get(case.advance(rounds).server.variables)) for rounds in (0, 2))
    moved = {path for path, leaf in before.items() if not np.array_equal(leaf, after[path])}
    assert moved == {path for path in before if "/adapter/" in path}
    assert len(moved) == 4


@pytest.mark.slow
def test_what_is_fixed_has_no_gradient() -> None:
    """It would count in the norm to which a gradient is clipped, and in that of a sharpness-aware step."""
    method, federation = build("fedclip", toy_federation(), sharpness=0.1), toy_federation()
    server, _ = method.init(jax.random.key(0), federation)
    received = server.variables
    batch = Batch(jax.random.uniform(jax.random.key(1), (4, *IMAGE)), jnp.arange(4) % CLASSES, jnp.ones(4), jnp.ones(4))
    context = Context(received, (), received, jnp.int32(0))

    @jax.jit
    @jax.grad
    def gradient(params: Any) -> jax.Array:
        return method.objective({**received, "params": params}, batch, jax.random.key(2), context)[0]

    found = flatten(jax.device_get(gradient(received["params"])))
    assert {path for path, leaf in found.items() if leaf.any()} == {p for p in found if p.startswith("adapter/")}


@pytest.mark.slow
def test_a_client_sends_its_adapter_and_noise_that_protects_it_moves_nothing_else() -> None:
    federation = toy_federation()
    method = build("fedclip", federation, weighting="uniform", server_momentum=0.9)
    sent = flatten(traffic(method, federation).message.update)
    adapter = {path for path in sent if path.startswith("params/adapter/")}
    assert set(sent) == adapter
    assert len(adapter) == 4
    case = make_case(method, federation, make_plan(epochs=1)._replace(privacy=Privacy(1.0, 1.0)))
    before, after = (flatten(jax.device_get(case.advance(rounds).server.variables)) for rounds in (0, 2))
    assert {path for path, leaf in before.items() if not np.array_equal(leaf, after[path])} == adapter


@pytest.mark.slow
def test_the_classes_embeddings_have_the_length_of_the_scale(embeddings: tuple[str, np.ndarray]) -> None:
    file, texts = embeddings
    method = build("fedclip", toy_federation(), class_embeddings=file, scale=30.0)
    last = method.init(jax.random.key(0), toy_federation())[0].variables["params"]["linear_2"]
    np.testing.assert_allclose(last["kernel"].T, 30 * texts / np.linalg.norm(texts, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(last["bias"], 0)


def test_without_embeddings_it_is_no_candidate_of_a_choice() -> None:
    config, data = make_config("fedclip"), domains_of((4, 4))
    said = "got no config.method.class_embeddings, without which it is not worth comparing"
    assert said in why_unfit(read_config(config), data, data.domain_names)
    config.method.class_embeddings = "classes.npy"
    assert "class_embeddings" not in why_unfit(read_config(config), data, data.domain_names)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (np.ones((FEATURES, CLASSES)), r"of shape \[4, 3\]"),
        (np.zeros((CLASSES, FEATURES)), "no directions"),
        (np.full((CLASSES, FEATURES), np.nan), "no directions"),
        (np.full((CLASSES, FEATURES), "a"), "no directions"),
        ("text", "config.method.class_embeddings got"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "classes.npy"
    if isinstance(content, str):
        file.write_text(json.dumps(content))
    elif content is not None:
        np.save(file, content)
    with pytest.raises(UserError, match=said) as error:
        read_embeddings(str(file), CLASSES, FEATURES)
    assert str(error.value).endswith(
        f"expected an .npy file of finite floats [{CLASSES}, {FEATURES}], a row for each class in their order"
    )
