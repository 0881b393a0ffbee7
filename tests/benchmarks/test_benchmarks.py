"""The benchmarks measure what they say: the same network on other layers, its operations counted, ratios within a
repeat. One tiny run; no figure is asserted."""

import argparse
import importlib
import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from benchmarks import aggregation, layers, views
from benchmarks.ceiling import forward_flops
from benchmarks.engine_round import network, with_plan
from benchmarks.jobs import Job, alternate
from benchmarks.models import MODELS, twin
from benchmarks.naive import InceptionCNN as NaiveInceptionCNN
from benchmarks.operations import step_operations
from benchmarks.options import base_job, parser, planned
from benchmarks.round import main
from benchmarks.tables import paired_ratio
from fdgjax import models
from fdgjax.models import AlexNet, DSEUnit, InceptionCNN
from fdgjax.models.client_model import as_model
from fdgjax.nn import Conv, Dense
from fdgjax.utils.errors import UserError

SHAPE = (8, 8, 3)
POSITIVE = st.floats(1e-3, 1e3)


@pytest.mark.slow
def test_a_run_prints_a_table_and_keeps_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Quickly compiled rather than quickly run.
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    record = tmp_path / "new" / "round.json"
    small = "--clients 2 --batch_size 2 --steps 1 --rounds 1 --repeats 1 --image_size 8"
    argv = [*small.split(), "--contenders", "map", "--models", "digits_cnn", "--json", str(record)]
    assert main(argv) == 0
    assert "| digits_cnn map |" in capsys.readouterr().out
    measured = {m["contender"]: m for m in json.loads(record.read_text())["measurements"]}
    assert measured["matmul"]["matmul_flops_per_second"] > 0
    ours = measured["digits_cnn map"]
    assert min(ours["images_per_second"], ours["peak_bytes"], ours["compile_seconds"], ours["program_bytes"]) > 0
    assert np.isfinite(ours["loss"])

    before = record.read_bytes()
    assert main(argv) == 2
    assert "exists" in capsys.readouterr().err
    assert record.read_bytes() == before


@pytest.mark.slow
def test_the_cost_of_views_is_a_line_for_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    small = "--models digits_cnn --width 0.1 --batch_size 2 --image_size 8 --steps 1 --repeats 1"
    assert views.main(small.split()) == 0
    *_, line = capsys.readouterr().out.strip().splitlines()
    name, alone, step, share = (word.strip() for word in line.strip("|").split("|"))
    assert name == "digits_cnn"
    assert float(alone) > 0
    assert float(share.rstrip(" %")) == pytest.approx(100 * float(alone) / float(step), rel=0.02, abs=0.1)


@pytest.mark.slow
def test_a_layer_is_measured_by_each_formulation(capsys: pytest.CaptureFixture[str]) -> None:
    small = "--layers 2,4,3,4,3,1 --without winograd winograd_small --turns 1 --repeats 1"
    assert layers.main(small.split()) == 0
    lines = [[word.strip() for word in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [name for _, name, *_ in lines] == ["forward", "input gradient", "kernel gradient"]
    for _, _, choice, times in lines:
        of = dict(each.rsplit(" ", 1) for each in times.split(", "))
        assert choice in of
        assert "winograd" not in of
        assert all(float(time) >= 0 for time in of.values())


@pytest.mark.parametrize("text", ["16,32,64", "16,32,64,128,3,0", "a,b,c,d,e,f"])
def test_a_layer_that_is_not_six_numbers_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"got|expected"):
        layers.layer(text)


@pytest.mark.slow
def test_the_cost_of_aggregation_is_a_line_for_each_contender(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["mean", "cosine_softmax:leaf", "hfedf"]
    small = "--model digits_cnn --clients 2 --image_size 8 --repeats 1 --contenders"
    assert aggregation.main([*small.split(), *names]) == 0
    lines = [[word.strip() for word in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    measured = {line[0]: line[1:] for line in lines if line[0] in names}
    assert list(measured) == names
    assert all(float(cpu) > 0 for cpu, _, _ in measured.values())
    assert measured["mean"][1] == "1.0"
    assert measured["hfedf"][1] == "-"
    assert aggregation.main(["--contenders", "men", "--clients", "1"]) == 2
    assert "did you mean 'mean'" in capsys.readouterr().err


class Networks(NamedTuple):
    """Logits in training, ours and the naive twin's, from one key."""

    ours: jax.Array
    naive: jax.Array


@pytest.fixture(scope="module")
def networks() -> Networks:
    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def compute(images: jax.Array) -> Networks:
        ours, naive = (as_model(kind(classes=7), SHAPE) for kind in (InceptionCNN, NaiveInceptionCNN))
        start, dropout = jax.random.key(0), jax.random.key(2)
        return Networks(*(model.apply(model.init(start), images, True, dropout)[0].logits for model in (ours, naive)))

    return compute(jax.random.normal(jax.random.key(1), (2, *SHAPE)))


@pytest.mark.slow
def test_the_naive_twin_is_the_same_network(networks: Networks) -> None:
    # Its first parameters and its dropout too: random streams follow the names of layers.
    np.testing.assert_allclose(networks.naive, networks.ours, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_operations_are_those_xla_counts() -> None:
    module = NaiveInceptionCNN(classes=7)
    model = as_model(module, (32, 32, 3))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    image = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    forward = jax.jit(lambda variables, image: module.apply(variables, image))
    counted = forward_flops(InceptionCNN(classes=7), (32, 32, 3))
    assert counted == forward_flops(module, (32, 32, 3))
    # XLA also counts activations and pooling, but no product with the padding around an image.
    xla: Any = forward.lower(shapes, image).cost_analysis()
    assert 0.8 < xla["flops"] / counted < 1.1


def test_operations_of_units_by_hand() -> None:
    # 6x6 outputs: a 3x3 convolution from 3 to 4 channels, and 3x3 from each of those; then 8 * 36 inputs to 5 logits.
    class Small(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
            x = DSEUnit(partial(Conv, kernel_size=(3, 3), padding=1, strides=2), 8)(x, train=train)
            return Dense(5)(x.reshape(len(x), -1))

    assert forward_flops(Small(), (12, 12, 3)) == 2 * (36 * 4 * 27 + 36 * 4 * 9 + 5 * 8 * 36)


@pytest.mark.parametrize("model", MODELS)
def test_sizes_go_by_the_model_unless_given(model: str) -> None:
    options = parser("")
    default, given = (base_job(options.parse_args(argv), model) for argv in ([], ["--image_size", "99"]))
    assert (default.model, default.image_size, default.batch_size) == (model, *MODELS[model][4:])
    assert given == default._replace(image_size=99)
    with pytest.raises(UserError, match="did you mean"):
        base_job(options.parse_args([]), "alexnets")


def test_a_plan_reaches_every_convolution_and_its_gradients() -> None:
    model = with_plan(as_model(InceptionCNN(classes=7), SHAPE), "im2col")
    variables = jax.eval_shape(model.init, jax.random.key(0))
    images = jax.ShapeDtypeStruct((2, *SHAPE), jnp.float32)

    def loss(variables: dict, images: jax.Array) -> jax.Array:
        return model.apply(variables, images, True, jax.random.key(0))[0].logits.sum()

    program = str(jax.make_jaxpr(jax.grad(loss))(variables, images))
    assert "plan=im2col" in program
    assert "plan=None" not in program


def test_every_network_of_the_registry_exists() -> None:
    for name, about in MODELS.items():
        assert about.network or name in models.MODELS
        assert isinstance(network(Job("engine", model=name)), nn.Module)
    assert network(Job("engine", model="dse_alexnet")) == AlexNet(7, unit=DSEUnit)
    with pytest.raises(UserError, match="no naive twin"):
        twin("digits_cnn", "naive")


def test_plans_apply_to_our_network_alone() -> None:
    jobs = {"a": Job("engine"), "b": Job("engine", network="naive"), "c": Job("torch")}
    assert list(planned(jobs, ["auto", "library"])) == ["a", "a/library", "b", "c"]
    with pytest.raises(UserError, match="plan"):
        planned(jobs, ["im2cool"])


def test_each_repeat_begins_with_another_job_and_hopeless_ones_are_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.jobs.launch", lambda job, limit: {"failed": "no"} if job.clients == 2 else {})
    jobs = {name: Job("engine", clients=many) for name, many in (("a", 1), ("b", 2), ("c", 3))}
    order = [(repeat, name) for repeat, name, _ in alternate(jobs, 3, 1.0)]
    assert order == [(0, "a"), (0, "b"), (0, "c"), (1, "c"), (1, "a"), (2, "c"), (2, "a")]


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=5), POSITIVE)
def test_a_busy_repeat_leaves_ratios_alone(pairs: list[tuple[float, float]], slower: float) -> None:
    above, below = ({k: pair[i] for k, pair in enumerate(pairs)} for i in (0, 1))
    busy = [{**speeds, 0: speeds[0] * slower} for speeds in (above, below)]
    ratio = paired_ratio(above, below)
    assert ratio is not None
    assert paired_ratio(*busy) == pytest.approx(ratio, rel=1e-9)


@pytest.mark.slow
def test_the_operations_of_a_step_are_those_of_its_network_whatever_the_clients() -> None:
    job = Job("engine", "digits_cnn", client_axis="vmap", clients=2, steps=1, image_size=8, plan="library")
    one, more, products = (
        step_operations(each, "cuda") for each in (job, job._replace(clients=3), job._replace(plan="im2col"))
    )
    # Two convolutions: twice forward, two kernel gradients, and the input gradient of the second.
    assert one["convolution"] == 5
    assert one == more
    assert products["convolution"] == 0
    assert products["dot_general"] == one["dot_general"] + 5


def test_the_script_for_a_gpu_asks_for_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "python"
    said.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/commands\n')
    said.chmod(0o755)
    script = Path(__file__).parents[2] / "launch" / "benchmark_gpu.sh"
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash", script, tmp_path / "out", "--repeats", "1"], env={"PATH": path}, check=True)
    asked: list[Job] = []

    def run(name: str, options: object, jobs: dict[str, Job]) -> None:
        asked.extend(jobs.values())
        raise UserError("only what is asked for")

    commands = (tmp_path / "commands").read_text().splitlines()
    for command in commands:
        _, module, *words = command.split()
        benchmark = importlib.import_module(module)
        monkeypatch.setattr(benchmark, "run", run)
        assert benchmark.main(words) == 2
    assert len(commands) == 9
    assert {"library", "im2col", "winograd"} <= {job.plan for job in asked}
    assert {"tensorfloat32", "float32"} <= {job.precision for job in asked}
    assert "bfloat16" in {job.dtype for job in asked}
