"""A frozen trunk: nothing of it is trained or sent, and what is kept of it changes no number."""

import dataclasses
import logging
import shutil
from functools import partial
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgjax.config import Config, from_plain, to_plain
from fdgjax.deploy.terms import Terms, agree
from fdgjax.experiments import build
from fdgjax.inference.classifier import open_classifier, predicted_by
from fdgjax.inference.trained_run import open_trained
from fdgjax.methods import METHODS
from fdgjax.models import MODELS, Backbone
from fdgjax.models.client_model import as_model, make_client_model, make_network
from fdgjax.models.pretrained.convert import convert, read_weights, with_values
from fdgjax.run.console import Console
from fdgjax.run.description import label_summary, labels_with_frozen
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of, flatten, merge
from tests.conformance.weights import CLASSES, FILES, SIDE
from tests.marks import mostly_slow
from tests.models.frozen import Tiny, built, frozen, rounds, tiny
from tests.runs import StopAfter, assert_same_run, never, small
from tests.toys import close

__all__ = ["tiny"]


OF_TRUNK = {
    *(f"params/first/{leaf}" for leaf in ("layer/kernel", "layer/bias", "bn/scale", "bn/bias")),
    *(f"batch_stats/first/bn/{leaf}" for leaf in ("mean", "var")),
}
SENT = {
    "fedavg": lambda path: True,
    "fedbn": lambda path: "/bn/" not in path,
    "hfedf": lambda path: path.startswith("params/"),
}
"""Which variables of the rest travel."""


@pytest.mark.parametrize("method", SENT)
def test_frozen_variables_have_their_fate_and_are_on_no_wire(method: str, cache: Path) -> None:
    experiment = built(cache, method)
    table = labels_with_frozen(experiment)
    assert {path for path, fate in table.items() if fate == "frozen"} == OF_TRUNK
    rest = {path: leaf for path, leaf in flatten(experiment.shapes).items() if path not in OF_TRUNK}
    assert set(rest) == set(table) - OF_TRUNK
    once = sum(bytes_of(leaf) for path, leaf in rest.items() if SENT[method](path))
    clients = experiment.facts["clients"]
    assert experiment.facts["bytes_up_per_round"] == experiment.facts["bytes_down_per_round"] == clients * once
    assert experiment.facts["frozen"] == 1
    of_trunk = 64 * 12 + 3 * 12
    assert experiment.facts["frozen_parameters"] == of_trunk
    assert f"frozen      6 variables  {4 * (of_trunk + 2 * 12):12,d} bytes" in label_summary(experiment)


@pytest.mark.parametrize("method", SENT)
def test_no_state_holds_a_frozen_variable(method: str, cache: Path) -> None:
    experiment = built(cache, method)
    state = jax.eval_shape(lambda: experiment.init())
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert any("second" in path for path in paths)
    assert not any("first" in path for path in paths)


KEPT = [
    name
    for name, entry in METHODS.items()
    if not entry.unlabelled and not entry.pixels(entry.hyper()) and name not in ("fedfa", "gperxan", "stablefdg")
]
"""Methods whose model alone sees the images (FedFA's, gPerXAN's and StableFDG's want convolutions). If one of them
changed images at random, its runs would differ here."""


@pytest.mark.slow
@pytest.mark.parametrize("method", mostly_slow(KEPT, ["fedavg"]))
def test_features_that_are_kept_change_nothing(method: str, cache: Path) -> None:
    ends = []
    for keep in (True, False):
        experiment = built(cache, method, keep)
        assert experiment.federation.inputs.shape[1:] == ((12,) if keep else (8, 8, 1))
        state = rounds(experiment, 2)
        ends.append(
            (jax.device_get(state), jax.device_get(experiment.evaluation.observe(state, experiment.federation)))
        )
    close(*(state for state, _ in ends), rtol=2e-3, atol=2e-4)
    (one, other) = (observed for _, observed in ends)
    np.testing.assert_allclose(one.target.loss, other.target.loss, rtol=1e-3)


@pytest.mark.slow
def test_the_trunk_is_what_it_was_and_predicts_with_the_rest(cache: Path) -> None:
    experiment = built(cache)
    assert experiment.trunk is not None
    before = jax.tree.map(np.copy, experiment.trunk.variables)
    state = rounds(experiment, 2)
    chex.assert_trees_all_equal(experiment.trunk.variables, before)
    trained = jax.tree.map(lambda leaf: leaf[0], experiment.method.unseen(state.server, state.clients))
    x = jnp.asarray(experiment.data.inputs[:5], jnp.float32) / 127.5 - 1
    for train in (False, True):
        ours, changed = experiment.whole.apply(trained, x, train, jax.random.key(0))
        kept = jnp.asarray(experiment.federation.inputs)[:5]
        from_features, _ = experiment.model.apply(trained, kept, train, jax.random.key(0))
        np.testing.assert_allclose(ours.logits, from_features.logits, rtol=1e-4, atol=1e-5)
        assert "first" not in changed.get("batch_stats", {})
    # The whole network's variables, as a file would hold them.
    logits = np.asarray(Tiny(10).apply(merge(experiment.trunk.variables, trained), x))
    np.testing.assert_allclose(
        logits, experiment.whole.apply(trained, x, False, jax.random.key(0))[0].logits, rtol=1e-4
    )


@pytest.mark.slow
def test_batch_norm_of_the_trunk_normalises_by_the_statistics_it_came_with(cache: Path) -> None:
    trunk = built(cache).trunk
    assert trunk is not None
    x = jnp.linspace(-1, 1, 4 * 64).reshape(4, 8, 8, 1)
    np.testing.assert_allclose(trunk(x)[:2], trunk(x[:2]), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_last_layer_alone(cache: Path) -> None:
    experiment = build(frozen(cache, "fedavg", stages=-1))
    assert set(flatten(experiment.shapes)) == {"params/head/kernel", "params/head/bias"}
    rounds(experiment, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "changes"), [("feddg", {}), ("hfedf", {"embeddings": "fixed"})])
def test_images_that_a_method_looks_at_are_images(
    method: str, changes: dict, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = frozen(cache, method)
    config = dataclasses.replace(config, method=dataclasses.replace(config.method, **changes))
    with caplog.at_level(logging.INFO, "fdgjax"):
        experiment = build(config)
    assert f"is computed in each step: {method} changes images" in caplog.text
    assert np.asarray(experiment.federation.inputs).dtype == np.uint8
    assert "first" not in str(jax.tree.structure(experiment.shapes))
    jax.eval_shape(experiment.round, jax.eval_shape(lambda: experiment.init()), experiment.train)


@pytest.mark.slow
def test_methods_without_labels_see_images(cache: Path) -> None:
    assert all(entry.unlabelled for name, entry in METHODS.items() if entry.head in ("projection", "prediction"))
    experiment = build(frozen(cache, "fedsimclr"))
    assert np.asarray(experiment.federation.inputs).dtype == np.uint8
    jax.eval_shape(experiment.round, jax.eval_shape(lambda: experiment.init()), experiment.train)


@pytest.mark.slow
def test_a_stopped_run_ends_as_one_that_was_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = frozen(tmp_path, "fedbn", seeds=2)
    run_config(config, tmp_path / "whole", Console(), never())
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "stopped", Console(), StopAfter(4))
    # What was kept is computed again, from the same weights.
    shutil.rmtree(tmp_path / "features")
    with caplog.at_level(logging.INFO, "fdgjax"):
        run_config(config, tmp_path / "stopped", Console(), never())
    assert "12 numbers for each of 1,797 images: 0 MiB (the images: 0 MiB), once, kept in" in caplog.text
    assert_same_run(tmp_path / "whole", tmp_path / "stopped", config)


@pytest.mark.slow
def test_features_are_computed_once_for_the_same_trunk_and_images(tmp_path: Path) -> None:
    def kept() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("features/*/features.npy")}

    build(frozen(tmp_path))
    first = kept()
    assert len(first) == 1
    build(frozen(tmp_path, "fedbn", seed=3))
    assert kept() == first
    build(frozen(tmp_path, stages=2))
    assert len(kept()) == 2
    scaled = frozen(tmp_path)
    build(dataclasses.replace(scaled, data=dataclasses.replace(scaled.data, scaling="unit")))
    assert len(kept()) == 3


@pytest.mark.slow
def test_features_that_are_damaged_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(frozen(tmp_path))
    (kept,) = tmp_path.glob("features/*/features.npy")
    whole = kept.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    kept.write_bytes(flipped)
    build(frozen(tmp_path))
    assert kept.read_bytes() == whole
    assert len([line for line in caplog.messages if "features.npy differs from its checksum" in line]) == 1


@pytest.mark.slow
def test_streamed_features_stay_on_the_host(cache: Path) -> None:
    config = built(cache).config
    streamed = build(dataclasses.replace(config, data=dataclasses.replace(config.data, streaming=True)))
    ends = [jax.device_get(rounds(experiment, 1)) for experiment in (built(cache), streamed)]
    close(*ends)


@pytest.mark.parametrize(
    ("model", "stages", "said"),
    [
        (
            "tiny",
            3,
            r"frozen got 3 for the model 'tiny'; expected at most 2, or -1 for all: its stages are first, second",
        ),
        ("tiny", -2, r"config.model.frozen got -2; expected at least -1"),
        ("stageless", 1, r"frozen got 1 for the model 'stageless'; expected at most 0, .*it has no stages"),
    ],
)
def test_stages_that_are_not_there(
    model: str, stages: int, said: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "stageless", Backbone(Tiny, "of the tests"))
    with pytest.raises(UserError, match=said):
        build(from_plain(to_plain(frozen(cache, model=model, stages=stages))))


def test_without_weights_the_run_says_that_the_trunk_is_random(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        build(frozen(cache))
    assert "the frozen stages of tiny are random, the same for every seed" in caplog.text


@pytest.mark.slow
def test_trunk_and_rest_start_from_a_file(tmp_path: Path) -> None:
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    network = partial(make_network, name, CLASSES, width=1 / 16)
    weights = read_weights(str(file), name)
    made = make_client_model(network, name, (SIDE, SIDE, 3), frozen=3, scaling="imagenet", weights=weights)
    assert made.trunk is not None
    assert made.trunk.stages == ("stem", "stage_1", "stage_2")
    bare = as_model(network(), (SIDE, SIDE, 3), "imagenet")
    whole = with_values(bare, convert(weights, bare.shapes()))
    variables, rest = (jax.jit(model.init)(jax.random.key(1)) for model in (whole, made.rest))
    chex.assert_trees_all_equal(merge(made.trunk.variables, rest), dict(variables))
    x, key = jnp.linspace(-1, 1, 2 * SIDE * SIDE * 3).reshape(2, SIDE, SIDE, 3), jax.random.key(0)
    expected = jax.jit(lambda x: whole.apply(variables, x, False, key)[0].logits)(x)
    np.testing.assert_allclose(
        jax.jit(lambda x: made.whole.apply(rest, x, False, key)[0].logits)(x), expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_a_run_is_not_continued_or_read_with_another_files_frozen_weights(cache: Path, tmp_path: Path) -> None:
    """Frozen stages are in no checkpoint: their file is compared with the one that training began with."""
    name, file, rng = "resnet18_imagenet", tmp_path / "weights.safetensors", np.random.default_rng(0)
    tensors = FILES[name]()
    save_file(tensors, file)
    for site in ("a", "b", "c"):
        inputs = rng.integers(0, 256, (12, SIDE, SIDE, 3), np.uint8)
        np.savez(tmp_path / f"{site}.npz", inputs=inputs, labels=np.arange(12) % 2)

    def config(rounds: int) -> Config:
        own = small(cache, model=name, rounds=rounds, data={"name": "arrays", "dir": str(tmp_path), "target": "a"})
        model = dataclasses.replace(own.model, width=1 / 16, frozen=-1, pretrained=str(file))
        return dataclasses.replace(own, model=model)

    run = tmp_path / "run"
    run_config(config(1), run, Console(), never())
    predict = predicted_by(open_classifier(run))
    predicted = predict(jnp.asarray(inputs)).probabilities
    moved = {key: value + np.float32(0.01) if key == "conv1.weight" else value for key, value in tensors.items()}
    save_file(moved, file)
    with pytest.raises(UserError, match=r"other weights of the frozen stages: their digest is \w{12} there and \w{12}"):
        run_config(config(2), run, Console(), never())
    for read in (open_classifier, open_trained):
        with pytest.raises(UserError, match=r"holds other weights of the frozen stages than training began with: "):
            read(run)
    # In a deployment each party has a file of its own.
    terms = Terms(config(1), ("0", "1"), inputs.shape[1:], 2)
    assert agree(terms).client.trunk
    with pytest.raises(UserError, match=r"other weights of the frozen stages than training began with"):
        agree(terms._replace(trunk="0" * 12))
    # What is trained starts afresh, whatever the file's last layer is.
    save_file(tensors | {"fc.bias": tensors["fc.bias"] + np.float32(1)}, file)
    np.testing.assert_array_equal(predicted_by(open_classifier(run))(jnp.asarray(inputs)).probabilities, predicted)
    assert run_config(config(2), run, Console(), never())["rounds"] == 2
