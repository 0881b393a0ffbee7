"""`choose` counts the clients that train while a domain is unseen: owners, where the data have some."""

import numpy as np
import pytest

from fdgjax.api.trainer import lending
from fdgjax.config import make_config, read_config
from fdgjax.data.owners import owners_of
from fdgjax.sweeps.choosing import why_unfit
from tests.toys import domains_of


@pytest.mark.parametrize(
    ("owners", "fits"), [(None, False), (["a"] * 8, False), (["a", "b", "c"], True), (["a"] * 12 + ["b"], False)]
)
def test_as_many_clients_as_there_are_owners_decide_what_fits(owners: list[str] | None, fits: bool) -> None:
    """Of two domains one is unseen, which leaves a single client where domains are clients."""
    data = domains_of((12, 12))
    order = np.argsort(data.domains, kind="stable")
    data = data._replace(domains=data.domains[order])
    data = data._replace(owners=owners_of(np.resize(owners, 24).tolist()) if owners else None)
    with lending({"own": data}):
        config = make_config("scaffold", "arrays")
        config.data.name, config.model.name = "own", "mlp"
        reason = why_unfit(read_config(config), data, data.domain_names)
    assert ("a single client" in reason) != fits
