"""Lists in the values of keys: words may have commas and line breaks, in quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.utils.errors import UserError
from fdgjax.utils.words import quoted, words_of

LETTERS = st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" \n\r")
WORD = st.text(LETTERS, max_size=8).map(str.strip).filter(bool)


@given(words=st.lists(WORD, max_size=4), space=st.sampled_from(["", " "]))
def test_quoted_words_are_read_again(words: list[str], space: str) -> None:
    assert words_of(f",{space}".join(map(quoted, words))) == tuple(words)


def test_spaces_and_empty_words_do_not_count() -> None:
    assert words_of(" a,, b ,") == ("a", "b")
    assert words_of("") == ()
    assert words_of('age, "name, first"') == ("age", "name, first")


@pytest.mark.parametrize("text", ["a\nb", "\r\na", "x" * 200_000])
def test_what_is_no_list_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="expected words separated by commas") as raised:
        words_of(text)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300
