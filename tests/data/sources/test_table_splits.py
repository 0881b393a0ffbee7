"""The column of a table that says what its rows are for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.data.columns import Column
from fdgjax.utils.errors import UserError
from tests.data.sources.test_tables import loaded, written

ROWS = "age,fold,sick\n40,train,no\n50,Test,yes\n41, val ,no\n"


def test_a_split_is_said_by_each_row_and_no_input(tmp_path: Path) -> None:
    data = loaded(written(tmp_path, {"a.csv": ROWS, "b.csv": ROWS.replace("train", "dev")}), split="fold")
    assert data.columns == (Column("age"),)
    assert data.splits is not None
    assert [np.flatnonzero(part).tolist() for part in data.splits] == [[0], [2, 3, 5], [1, 4]]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (ROWS, {"split": "part"}, "unknown column of config.data.split 'part'"),
        (ROWS, {"split": "sick"}, "config.data.split got 'sick', which is config.data.label; expected another"),
        (ROWS, {"split": "fold", "group": "fold"}, "config.data.split got 'fold', which is config.data.group"),
        (ROWS.replace("fold", "part"), {"split": "fold"}, r"b.csv has no column 'fold' \(config.data.split\); it has"),
        (ROWS.replace("Test", "3"), {"split": "fold"}, "b.csv has '3' as 'fold' in line 3; expected train, validation"),
        (ROWS.replace("Test", ""), {"split": "fold"}, "b.csv has nothing as 'fold' in line 3; expected train, valid"),
    ],
)
def test_each_mistake_is_one_line(rows: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as error:
        loaded(written(tmp_path, {"a.csv": ROWS, "b.csv": rows}), **options)
    assert "\n" not in str(error.value)
