"""Every method of the registry: hyperparameters are declared and taken from the paper, labels are words that exist."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax import methods
from fdgjax.contract import Context, PyTree, Setup, Trained
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.traffic import traffic
from fdgjax.methods import METHODS
from fdgjax.methods.parts.hyper import SCHEDULES, ClientHyper, check_values, settled
from fdgjax.methods.parts.optimizers import client_optimizer, optimizer
from fdgjax.models import HEADS, UNITS, InceptionCNN
from fdgjax.models.client_model import as_model
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten, label_table
from tests.marks import mostly_slow
from tests.toy_models import tiny_model
from tests.toys import (
    CLIENTS,
    DOMAINS,
    OBJECTIVES_ALONE,
    build,
    check_recordable,
    flat,
    make_plan,
    poison,
    round_info,
    row,
    shared_case,
    shared_method,
    small_hyper,
    toy_federation,
)

ALL = sorted(METHODS)
MOST = mostly_slow(ALL, set(ALL) - set(OBJECTIVES_ALONE))


def hyperparameters(kind: type) -> list[dataclasses.Field]:
    """All fields but the method's name."""
    return [field for field in dataclasses.fields(kind) if field.name != "name"]


# Grid and PACS column of hFedF v2, Table 10; non-federated methods take FedAvg's (appendix C.8.2).
RATES, SERVER_RATES = {1e-3, 1e-4, 1e-5}, {1e-1, 1e-2, 1e-3}
TABLE_10: dict[str, dict[str, tuple[set[float], float]]] = {
    "fedavg": {"client_learning_rate": (RATES, 1e-3), "client_weight_decay": (RATES, 1e-4)},
    "fedprox": {
        "client_learning_rate": (RATES, 1e-3),
        "client_weight_decay": (RATES, 1e-4),
        "mu": ({1e-1, 1e-2, 1e-3}, 1e-2),
    },
    "fedgma": {
        "client_learning_rate": (RATES, 1e-3),
        "client_weight_decay": (RATES, 1e-4),
        "tau": ({0.3, 0.5, 0.7}, 0.7),
        "server_learning_rate": ({1.0, 1e-1, 1e-2}, 1.0),
    },
    "fedsr": {
        "client_learning_rate": (RATES, 1e-3),
        "client_weight_decay": (RATES, 1e-5),
        "l2r": ({1e-1, 1e-2, 1e-3}, 1e-1),
    },
    "pfedhn": {
        "server_learning_rate": (SERVER_RATES, 1e-2),
        "server_weight_decay": (RATES, 1e-3),
        "client_learning_rate": (RATES, 1e-3),
        "client_weight_decay": (RATES, 1e-5),
    },
    "hfedf": {
        "server_learning_rate": (SERVER_RATES, 1e-3),
        "server_weight_decay": (RATES, 1e-5),
        "ema": ({0.75, 0.85, 0.95}, 0.95),
        "client_learning_rate": (RATES, 1e-3),
        "client_weight_decay": (RATES, 1e-3),
    },
}
TABLE_10 |= {"central": TABLE_10["fedavg"], "local": TABLE_10["fedavg"]}


@pytest.mark.parametrize("name", ALL)
def test_every_hyperparameter_has_a_default_a_range_and_a_source(name: str) -> None:
    kind: Any = METHODS[name].hyper
    assert kind.__dataclass_params__.frozen
    default = kind()
    for field in hyperparameters(kind):
        assert field.metadata["search"], field.name
        assert field.metadata["source"], field.name
        value = getattr(default, field.name)
        assert all(isinstance(tried, type(value)) for tried in field.metadata["search"]), field.name
        assert len(set(field.metadata["search"])) == len(field.metadata["search"]), field.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        default.client_learning_rate = 1.0
    assert METHODS[name].summary


def test_a_file_of_the_folder_is_a_method_of_that_name() -> None:
    files = {file.stem for file in Path(methods.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(METHODS) == files == {entry.name for entry in METHODS.values()}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in TABLE_10 for key in TABLE_10[name]])
def test_the_papers_selected_values_are_the_defaults(name: str, key: str) -> None:
    grid, selected = TABLE_10[name][key]
    field = {f.name: f for f in dataclasses.fields(METHODS[name].hyper)}[key]
    assert getattr(METHODS[name].hyper(), key) == selected
    assert set(field.metadata["search"]) == grid
    assert field.metadata["source"] == "hFedF v2, Table 10"


@pytest.mark.parametrize("name", ALL)
def test_defaults_lie_in_their_ranges(name: str) -> None:
    defaults = [settled(METHODS[name].hyper(), pretrained=start) for start in (False, True)]
    for field in hyperparameters(METHODS[name].hyper):
        assert {getattr(h, field.name) for h in defaults} <= set(field.metadata["search"]), field.name
        if isinstance(field.default, int | float):
            assert all(field.metadata["bounds"].hold(value) for value in field.metadata["search"]), field.name


@pytest.mark.parametrize("name", ALL)
def test_an_entry_says_what_its_method_says_of_pooled_data(name: str) -> None:
    h = small_hyper(name)
    assert METHODS[name].pooled(h) == shared_method(name).pooled
    if hasattr(h, "pooled"):
        assert METHODS[name].pooled(small_hyper(name, pooled=True)) is build(name, toy_federation(), pooled=True).pooled


@pytest.mark.parametrize("name", ALL)
def test_the_optimiser_of_every_method_can_outlive_the_round_and_follow_every_schedule(name: str) -> None:
    for keep in (False, True):
        assert build(name, toy_federation(), keep_optimizer=keep).keep_optimizer is keep
    for schedule in SCHEDULES:
        check_values(METHODS[name].hyper(client_schedule=schedule))


@pytest.mark.parametrize("name", ALL)
def test_labels_say_where_variables_are(name: str) -> None:
    method = build(name, toy_federation(), "norm")
    _, clients = jax.eval_shape(method.init, jax.random.key(0), toy_federation())
    variables = traffic(method, toy_federation()).received
    table = label_table(variables, method.label)
    kept = {leaf.shape[1:] for leaf in jax.tree.leaves(clients)}
    for path, leaf in flatten(variables).items():
        if table[path] == "local":
            assert leaf.shape in kept, path


@pytest.mark.parametrize("name", ALL)
def test_client_state_has_the_client_axis_first(name: str) -> None:
    case = shared_case(name, plan=make_plan(drop_nonfinite=True))
    state = jax.eval_shape(case.start)
    assert all(len(leaf) == len(case.federation.ids) for leaf in jax.tree.leaves((state.clients, state.optimizers)))
    assert bool(jax.tree.leaves(state.optimizers)) == case.method.keep_optimizer


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST)
def test_a_client_starts_from_what_predicts_for_it(name: str) -> None:
    case = shared_case(name, plan=make_plan(drop_nonfinite=True))
    state = case.start()
    method, mine = case.method, row(state.clients, 0)

    @jax.jit
    def models(server: PyTree, clients: PyTree, mine: PyTree) -> PyTree:
        return (
            method.predict(server, mine),
            method.unseen(server, clients),
            method.start(method.send(server, mine), mine),
        )

    predicting, unseen, begun = models(state.server, state.clients, mine)
    model = jax.eval_shape(tiny_model(method=name).init, jax.random.key(0))
    chex.assert_trees_all_equal_shapes_and_dtypes(predicting, model)
    # A method may train more than what predicts.
    started = jax.tree.leaves(begun)
    assert all(any(np.array_equal(leaf, other) for other in started) for leaf in jax.tree.leaves(predicting))
    # What `adapt` reads may travel with a model for an unseen domain.
    predicts = {name: tree for name, tree in unseen.items() if name in model or method.adapt is None}
    assert jax.tree.map(lambda x: x.shape[1:], predicts) == jax.tree.map(lambda x: x.shape, model)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(ALL, ("fdse", "hfedf", "scaffold", "semifl")))
def test_the_update_in_a_message_is_zero_without_training_and_can_be_put_back(name: str) -> None:
    case = shared_case(name, plan=make_plan(drop_nonfinite=True))
    state, method, train = case.start(), case.method, case.federation.train

    @jax.jit
    def untrained(server: PyTree, mine: PyTree, optimizer: PyTree, images: jax.Array) -> PyTree:
        sent = method.send(server, mine)
        received, zero = method.start(sent, mine), jnp.zeros((), jnp.int32)
        context = Context(sent, mine, received, zero)
        if method.prepare:
            federation = case.federation._replace(inputs=images)
            samples = samples_of(LocalData(federation, train.places[0], train.length[0]), 2)
            context = context._replace(aux=method.prepare(context, samples).aux)
        begin = optimizer if method.keep_optimizer else method.optimizer.init(received["params"])
        message, _ = method.finish(context, Trained(received, begin, jnp.float32(0), zero))
        return message, method.updates.get(message), method.updates.set(message, method.updates.get(message))

    message, update, again = untrained(
        state.server, row(state.clients, 0), row(state.optimizers, 0), case.federation.inputs
    )
    chex.assert_trees_all_equal(message, again)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(update))
    if name not in ("fedproto", "local"):
        assert jax.tree.leaves(update)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(ALL, ("fdse", "fedgala", "hfedf", "uap")))
def test_builds_for_the_papers_model_at_full_size(name: str) -> None:
    """Shapes only: nothing of the 47 million numbers is computed."""
    unit, head = METHODS[name].unit, METHODS[name].head
    module = HEADS[head or "linear"](partial(InceptionCNN, unit=UNITS[unit or "plain"]), 7, 1.0)
    model = as_model(module, (32, 32, 3))
    setup = Setup(model, CLIENTS, 200, domains=DOMAINS)
    method = METHODS[name].build(setup, METHODS[name].hyper())
    federation = toy_federation()
    images: Any = jax.ShapeDtypeStruct((len(federation.labels), 32, 32, 3), jnp.uint8)
    server, clients = jax.eval_shape(method.init, jax.random.key(0), federation._replace(inputs=images))
    mine = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), clients)
    predicting = jax.eval_shape(method.predict, server, mine)
    many = sum(leaf.size for leaf in jax.tree.leaves(predicting["params"]))
    assert many == sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))["params"]))
    assert unit or head or many == 928_199


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["tree", "leaf"])
@pytest.mark.parametrize("alignment", ["separate", "joint", "none"])
def test_every_alignment_can_be_recorded(alignment: str, scope: str) -> None:
    method = build("hfedf", toy_federation(), alignment=alignment, alignment_scope=scope)
    state = shared_case("hfedf", plan=make_plan(drop_nonfinite=True)).start()
    messages = jax.vmap(method.predict, in_axes=(None, 0))(state.server, state.clients)["params"]
    gradient, coefficients = jax.jit(method.aggregate)(state.server, state.clients, messages, jnp.ones(CLIENTS))
    chex.assert_trees_all_equal_structs(gradient, state.server.weights)
    check_recordable(round_info(range(CLIENTS), coefficients=coefficients), CLIENTS)


@pytest.mark.parametrize("name", ["fedavg", "hfedf"])
def test_unknown_words_in_hyperparameters_are_refused_in_one_line(name: str) -> None:
    wrong = {"weighting": "sample", "server_optimizer": "adma"}
    wrong |= {"alignment": "seperate", "embeddings": "learnt"} if name == "hfedf" else {}
    for key, word in wrong.items():
        with pytest.raises(UserError, match=f"'{word}'.*did you mean") as error:
            build(name, toy_federation(), **{key: word})
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="momentum") as error:
        optimizer("adam", learning_rate=0.1, momentum=0.9)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "sm3", "lars"])
def test_an_optimiser_without_momentum_has_none(name: str) -> None:
    """optax's own default is 0.9 for the last two: a second step by no gradient would move on."""
    params = {"w": np.array([1.0, -2.0], np.float32)}
    plain = optimizer(name, learning_rate=0.1, momentum=0.0)
    _, state = plain.update({"w": np.array([0.5, 0.5], np.float32)}, plain.init(params), params)
    still, _ = plain.update({"w": np.zeros(2, np.float32)}, state, params)
    np.testing.assert_array_equal(still["w"], 0)


@pytest.mark.parametrize("key", ["client_optimizer", "server_optimizer"])
def test_an_optimiser_that_needs_more_than_gradients_is_refused_in_one_line(key: str) -> None:
    with pytest.raises(UserError, match=r"'lbfgs' needs more than gradients.*expected.*sgd") as error:
        build("fedavg", toy_federation(), **{"client_momentum": 0.0, key: "lbfgs"})
    assert "\n" not in str(error.value)
    for name in ("adafactor", "lion", "novograd", "rprop", "sm3"):
        build("fedavg", toy_federation(), **{"client_momentum": 0.0, key: name})


def test_weight_decay_is_an_l2_gradient() -> None:
    params, grads = {"w": np.array([1.0, -2.0], np.float32)}, {"w": np.array([0.5, 0.5], np.float32)}
    decayed = optimizer("sgd", learning_rate=0.1, weight_decay=0.01)
    updates, _ = decayed.update(grads, decayed.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.1 * (grads["w"] + 0.01 * params["w"]), rtol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", ["adamw", pytest.param("lion", marks=pytest.mark.slow)])
def test_a_weight_decay_of_the_optimiser_s_own_is_the_one_that_is_set(name: str, decay: float) -> None:
    """Without a gradient w moves by `-rate decay w` alone, and not at all where no decay is set."""
    params, nothing = {"w": np.array([1.0, -2.0], np.float32)}, {"w": np.zeros(2, np.float32)}
    decayed = optimizer(name, learning_rate=0.1, weight_decay=decay)
    updates, _ = decayed.update(nothing, decayed.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.1 * decay * params["w"], rtol=1e-6)


def test_an_optimiser_that_draws_the_same_noise_for_all_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"'noisy_sgd' draws noise.*expected.*sgd.*config.privacy") as error:
        optimizer("noisy_sgd", learning_rate=0.1)
    assert "\n" not in str(error.value)


def test_the_learning_rate_decays_with_the_rounds_and_long_gradients_are_clipped() -> None:
    """FDSE, A7.4: rate times decay^round; the gradient is cut to the length before weight decay is added."""
    params, grads = {"w": np.array([1.0, -2.0], np.float32)}, {"w": np.array([3.0, 4.0], np.float32)}
    settings: Any = {"client_optimizer": "sgd", "client_learning_rate": 0.1, "client_weight_decay": 0.01}
    clipped = client_optimizer(ClientHyper(**settings, client_learning_rate_decay=0.5, client_clip=1.0), rounds=3)
    for round_ in (0, 1, 3):
        updates, _ = clipped.update(grads, clipped.init(params), params, done=jnp.float32(round_))
        wanted = -0.1 * 0.5**round_ * (grads["w"] / 5 + 0.01 * params["w"])
        np.testing.assert_allclose(updates["w"], wanted, rtol=1e-6)
    short, _ = clipped.update({"w": grads["w"] / 50}, clipped.init(params), params, done=jnp.float32(0))
    np.testing.assert_allclose(short["w"], -0.1 * (grads["w"] / 50 + 0.01 * params["w"]), rtol=1e-6)


@pytest.mark.slow
def test_toys_do_what_they_say() -> None:
    federation = toy_federation()
    assert int(federation.domains.max()) == DOMAINS - 1
    case = shared_case("local", plan=make_plan(drop_nonfinite=True))
    _, info = case.round(case.start(), poison(federation, 3))
    assert np.asarray(info.finite).tolist() == [True, True, True, False]
    assert small_hyper("fedprox", mu=0.5).mu == 0.5
    assert flat(case.start().server).size == 0
    assert shared_method("central").pooled
