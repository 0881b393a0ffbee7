"""Which party holds what of a client's row follows from what the method's functions read and write."""

import jax
import pytest

from fdgjax.deploy.leaves import by_path
from fdgjax.deploy.placement import Placement, check_init, placement_of, unseen_from_server
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import any_key
from tests.toys import build, toy_federation


def held(name: str, model: str = "norm") -> tuple[Placement, set[str]]:
    method, federation = build(name, toy_federation(), model), toy_federation()
    rows = by_path(jax.eval_shape(method.init, any_key(), federation)[1])
    return placement_of(method, federation), set(rows)


def test_batch_norm_of_fedbn_stays_at_the_node() -> None:
    placement, rows = held("fedbn")
    assert rows
    assert not placement.server
    method, federation = build("fedbn", toy_federation(), "norm"), toy_federation()
    assert not unseen_from_server(method, federation, placement)


def test_what_the_server_alone_reads_and_writes_is_at_the_server() -> None:
    placement, rows = held("fedheal")
    assert placement.server == placement.written == rows


def test_a_count_that_both_need_is_at_both_and_a_model_at_the_node() -> None:
    placement, rows = held("feddg_ga")
    assert placement.server == {".more.rounds", ".more.weight"}
    assert placement.written == {".more.weight"}
    assert ".more.rounds" in placement.replayed
    assert any(path.startswith(".more.model") for path in rows - placement.server)


@pytest.mark.slow
def test_a_first_state_that_nobody_can_compute_is_refused() -> None:
    for embeddings in ("learned", "fixed"):
        method, federation = build("hfedf", toy_federation(), embeddings=embeddings), toy_federation()
        placement = placement_of(method, federation)
        if embeddings == "learned":
            check_init(method, federation, placement)
            continue
        with pytest.raises(UserError, match="samples of another party"):
            check_init(method, federation, placement)
