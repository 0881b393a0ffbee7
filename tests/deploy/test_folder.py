"""The server's folder is one federation's."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fdgjax.data.columns import Column
from fdgjax.deploy.folder import FEDERATION, open_folder
from fdgjax.run.records import Workdir, read_config_file
from fdgjax.utils.errors import UserError
from tests.deploy.faulty import trial
from tests.deploy.trial import Trial
from tests.runs import perceptron

__all__ = ["perceptron", "trial"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unseen": 0}, "unseen is None there and 0 here"),
        ({"class_names": ("x", "y")}, r"class_names is \['0', .*\] there and \['x', 'y'\] here"),
        ({"sample_shape": (9, 9, 1)}, r"sample_shape is \[.*, 1\] there and \[9, 9, 1\] here"),
        ({"clients": 3}, "clients is 2 there and 3 here"),
        ({"columns": (Column("age"),)}, r"columns is \[\] there and \[\['age', \[\]\]\] here"),
        ({"trunk": "abc"}, "trunk is '' there and 'abc' here"),
    ],
)
def test_a_folder_with_the_run_of_another_federation_is_refused(
    changes: dict[str, Any], words: str, trial: Trial, tmp_path: Path
) -> None:
    open_folder(tmp_path, trial.terms)
    open_folder(tmp_path, trial.terms)
    for rounds in (3, 4):  # the run is not continued, either
        config = dataclasses.replace(trial.terms.config, rounds=rounds)
        with pytest.raises(
            UserError, match=f"holds another federation's run: {words}; expected the same; make the app"
        ):
            open_folder(tmp_path, trial.terms._replace(config=config, **changes))
    assert read_config_file(Workdir(tmp_path))["config"]["rounds"] == 3


def test_a_folder_of_an_earlier_version_goes_on_and_is_the_federations_from_then(trial: Trial, tmp_path: Path) -> None:
    open_folder(tmp_path, trial.terms)
    (tmp_path / FEDERATION).unlink()
    open_folder(tmp_path, trial.terms)
    with pytest.raises(UserError, match="another federation's run"):
        open_folder(tmp_path, trial.terms._replace(unseen=1))
    (tmp_path / FEDERATION).write_text("{}")
    with pytest.raises(UserError, match=r"is damaged .*; restore it from a copy, or make the app with another"):
        open_folder(tmp_path, trial.terms)
