"""A table has as many cells in each line as columns, whatever is in them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.utils.markdown import markdown_table

WORDS = st.text(st.sampled_from("ab|\n\u202e-: "), max_size=5)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(data=st.data(), columns=st.integers(1, 4), rows=st.integers(0, 3))
def test_every_line_has_a_cell_for_each_column(data: st.DataObject, columns: int, rows: int) -> None:
    titles, *others = (data.draw(st.lists(WORDS, min_size=columns, max_size=columns)) for _ in range(rows + 1))
    lines = markdown_table(titles, others, right=titles[:1])
    assert len(lines) == rows + 2
    assert {line.count("|") for line in lines} == {columns + 1}
    assert all(line.isprintable() for line in lines)
    assert lines[1].startswith("|--:|")


def test_columns_are_flush_right_if_asked() -> None:
    assert markdown_table(["a", "b"], [["x|y", "1"]], right=["b"]) == ["| a | b |", "|---|--:|", "| x/y | 1 |"]
