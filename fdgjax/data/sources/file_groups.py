"""Groups and owners of images from the names of their files: `patient12-03.png` of patient 12."""

import re
from collections.abc import Sequence

from fdgjax.data.groups import NoGroupError
from fdgjax.utils.errors import UserError, printable


def file_groups(names: Sequence[str], pattern: str, key: str = "group") -> list[str]:
    """The name of each image's group, or owner: what the pattern's first parentheses match in the name of its file, or
    the whole pattern, if it has none.

    Args:
      names: of the images' files, perhaps with their folders, `<domain>/<class>/<file>`, in which nothing is searched.
      pattern: a regular expression, searched anywhere in a name; such as `^patient\\d+` or `_p(\\d+)_`.
      key: of `config.data` that the pattern is the value of, for error messages.

    Raises:
      NoGroupError: a name in which it is not found.
      UserError: an invalid expression.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"config.data.{key} got '{pattern}' ({error}); expected a regular expression for the names of files"
        ) from error
    files = [name.rpartition("/")[2] for name in names]
    found = [expression.search(file) for file in files]
    first = 1 if expression.groups else 0
    if lacking := [name for name, match in zip(files, found, strict=True) if match is None or match[first] is None]:
        raise NoGroupError(
            f"config.data.{key} got '{pattern}', which is not found in the names of {len(lacking):,} of {len(names):,} "
            f"images, such as {printable(lacking[0])}; expected an expression that is in each name"
        )
    return [match[first] for match in found if match]
