"""What griffe, which reads the docstrings for the reference, is given instead of them: `website.markdown`."""

from collections.abc import Sequence
from typing import Any

import griffe

from website.markdown import as_markdown


class Lists(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """The fields of a class are its keys."""
        self._rewrite(cls, [name for name, member in cls.members.items() if member.is_attribute])

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """The parameters of a function are its keys."""
        self._rewrite(func, [parameter.name for parameter in func.parameters])

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """A module has no keys."""
        self._rewrite(mod, [])

    def _rewrite(self, thing: griffe.Object, keys: Sequence[str]) -> None:
        if thing.docstring:
            thing.docstring.value = as_markdown(thing.docstring.value, keys)
