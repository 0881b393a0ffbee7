"""The program that gives class probabilities: those of each model on its own rows, on every client axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.federation import Federation, Rows
from fdgjax.engine import Execution
from fdgjax.evaluation import Tallies, compile_evaluation
from fdgjax.evaluation.probabilities import probabilities_in
from fdgjax.evaluation.tally import EvaluationSettings
from tests.evaluation.test_evaluation import federations, forward, trained
from tests.toy_models import tiny_model
from tests.toys import DOMAINS, make_plan, row, shared_case

pytestmark = pytest.mark.slow


def observed(name: str, federation: Federation, execution: Execution, batch_size: int = 4) -> Tallies:
    method, model = shared_case(name, plan=make_plan(drop_nonfinite=True)).method, tiny_model(method=name)
    evaluation = compile_evaluation(
        method,
        model,
        EvaluationSettings(batch_size, 4, execution),
        domains=DOMAINS,
        further=probabilities_in(model, batch_size=batch_size, execution=execution),
    )
    found: Tallies = jax.device_get(evaluation(trained(name), federation))
    return found


@pytest.mark.parametrize(
    ("name", "execution", "batch_size"),
    [
        ("local", Execution("map"), 4),
        ("local", Execution("vmap"), 3),
        ("local", Execution("map", devices=3), 256),
        ("central", Execution("map"), 4),
    ],
)
def test_each_model_on_its_own_rows(name: str, execution: Execution, batch_size: int) -> None:
    federation, state = federations()["unseen_client"], trained(name)
    method = shared_case(name, plan=make_plan(drop_nonfinite=True)).method
    images = jnp.asarray(np.asarray(federation.inputs).astype(np.float32) / 127.5 - 1)
    found = observed(name, federation, execution, batch_size).further

    def expected(variables: object, rows: np.ndarray) -> np.ndarray:
        output, _ = forward(name)(variables, images, False, jax.random.key(0))
        return np.asarray(jax.nn.log_softmax(output.logits))[rows]

    def check(got: np.ndarray, client: int, table: Rows, place: int) -> None:
        rows = np.asarray(table.places)[place, : int(table.length[place])]
        variables = method.predict(state.server, row(state.clients, 0 if method.pooled else client))
        np.testing.assert_allclose(got[: len(rows)], expected(variables, rows), rtol=1e-4, atol=1e-5)

    for client in range(len(federation.ids)):
        check(found.source[client], client, federation.validation, client)
        check(found.test[client], client, federation.test, client)
    models = method.unseen(state.server, state.clients)
    whole = np.asarray(federation.target.places)[0, : int(federation.target.length[0])]
    assert len(found.target) == len(jax.tree.leaves(models)[0])
    for i, got in enumerate(found.target):
        np.testing.assert_allclose(got[: len(whole)], expected(row(models, i), whole), rtol=1e-4, atol=1e-5)


def test_the_counts_are_those_without_probabilities() -> None:
    federation = federations()["leave_one_out"]
    found = observed("local", federation, Execution("map"))
    nll = -np.mean(
        [
            found.further.target[i, place, int(federation.labels[sample])]
            for i in range(len(found.further.target))
            for place, sample in enumerate(np.asarray(federation.target.places)[0, : int(federation.target.length[0])])
        ]
    )
    assert nll == pytest.approx(float(np.sum(found.target.loss) / np.sum(found.target.total)), rel=1e-5)
