"""Lists in the values of keys: words may have commas, in quotes."""

from hypothesis import given
from hypothesis import strategies as st

from fdgjax.utils.words import quoted, words_of

WORD = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)


@given(words=st.lists(WORD, max_size=4), space=st.sampled_from(["", " "]))
def test_quoted_words_are_read_again(words: list[str], space: str) -> None:
    assert words_of(f",{space}".join(map(quoted, words))) == tuple(words)


def test_spaces_and_empty_words_do_not_count() -> None:
    assert words_of(" a,, b ,") == ("a", "b")
    assert words_of("") == ()
    assert words_of('age, "name, first"') == ("age", "name, first")
