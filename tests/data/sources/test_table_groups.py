"""The column of a table that says which rows stay together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.data.columns import Column
from fdgjax.utils.errors import UserError
from tests.data.sources.test_tables import NORTH, SOUTH, loaded, written


def test_a_group_is_a_value_of_one_domain_and_no_input(tmp_path: Path) -> None:
    rows = "patient,age,sick\n{a},40,no\n{b},50,yes\n{a},41,no\n"
    # Names of groups are words, whatever numbers they may be.
    files = {"a.csv": rows.format(a="x", b="1e39"), "b.csv": rows.format(a="7", b="007")}
    data = loaded(written(tmp_path, files), group="patient")
    assert data.columns == (Column("age"),)
    assert data.groups is not None
    same = data.groups[:, None] == data.groups
    together = np.zeros((6, 6), bool)
    together[np.ix_([0, 2], [0, 2])] = together[np.ix_([3, 5], [3, 5])] = together[1, 1] = together[4, 4] = True
    np.testing.assert_array_equal(same, together)


MISTAKES: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any], str]] = {
    "an unknown group": ({}, {"group": "patient"}, "unknown column of config.data.group 'patient'"),
    "a group that is the label": ({}, {"group": "sick"}, "config.data.group got 'sick', which is config.data.label"),
    "a table without the group": (
        {"b.csv": "sick,age\nno,3\nyes,4\n"},
        {"group": "pain"},
        r"b.csv has no column 'pain' \(config.data.group\); it has: sick, age",
    ),
    "a row without a group": ({}, {"group": "pain"}, r"south.csv has no 'pain' in line 3; expected a group in each"),
    "a word for none": (
        {"north.csv": NORTH.replace("typical", "NA")},
        {"group": "pain"},
        r"north.csv has no 'pain' in line 2; expected a group in each",
    ),
    "a word that is declared missing": (
        {"north.csv": NORTH.replace("typical", "-9.0")},
        {"group": "pain"},
        r"north.csv has no 'pain' in line 2; expected a group in each",
    ),
    "one that is so in this column": (
        {"north.csv": NORTH.replace("typical", "unknown")},
        {"group": "pain", "missing": ("pain=unknown",)},
        r"north.csv has no 'pain' in line 2; expected a group in each",
    ),
    "nothing beside the label and the group": (
        {f"{name}.csv": "sick,pain\nno,a\nyes,b\n" for name in ("north", "south")},
        {"group": "pain"},
        "no column besides 'sick' and 'pain'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_line(mistake: str, tmp_path: Path) -> None:
    files, options, words = MISTAKES[mistake]
    with pytest.raises(UserError, match=words) as error:
        loaded(written(tmp_path, {"north.csv": NORTH, "south.csv": SOUTH} | dict(files)), **options)
    assert "\n" not in str(error.value)
