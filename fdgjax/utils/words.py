"""Lists in the values of keys."""


def words_of(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, without the spaces around them; doubled ones stay."""
    return tuple(word for word in map(str.strip, text.split(",")) if word)
