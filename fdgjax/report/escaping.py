r"""Escapes for each format, so that the name of a run, a domain or a class never becomes markup or code.

One function for each format. All of them put a name on one `printable` line first, since line breaks, control
characters, lone surrogates and marks that reverse text have no place in any.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fdgjax.utils.errors import printable

if TYPE_CHECKING:
    from markupsafe import Markup

LONGEST = 24
"""The most characters of a name in a figure, whose panel longer ones would fill."""

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001
"""Characters with which a formula of a spreadsheet begins, the full-width ones too."""

LATEX: Mapping[str, str] = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    # After the end of a row, `[` would begin a length and `*` forbid a page break.
    **{character: f"{{{character}}}" for character in "[]*"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}

MARKDOWN: Mapping[str, str] = {
    **{character: f"\\{character}" for character in "\\`*[]|~$"},
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
}


def for_figure(name: str, longest: int = LONGEST) -> str:
    """A name in a drawing, cut where it is too long; nothing to escape, as drawings do not parse mathematics."""
    words = printable(name)
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def for_html(value: Any) -> "str | Markup":
    """What the page shows of a value; Jinja then escapes all that is not marked as safe."""
    return value if hasattr(value, "__html__") else printable(value)


def for_csv(words: str) -> str:
    """A cell; one that a spreadsheet would compute begins with an apostrophe, unless it is a number."""
    words = printable(words)
    return f"'{words}" if words.lstrip().startswith(FORMULA) and not is_number(words) else words


def is_number(words: str) -> bool:
    """Whether words are a number."""
    try:
        float(words)
    except ValueError:
        return False
    return True


def for_latex(words: str) -> str:
    """Text for a document, with a command for each character that is special to TeX."""
    return "".join(LATEX.get(character, character) for character in printable(words))


def for_markdown(words: str) -> str:
    """Text of a paragraph or a table's cell; an underscore within a word needs no escape."""
    escaped = "".join(MARKDOWN.get(character, character) for character in printable(words))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)
