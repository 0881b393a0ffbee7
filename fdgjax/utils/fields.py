"""Fields of a config's dataclasses: a default and the allowed values, which are checked and shown by `--help`."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


class Allowed(NamedTuple):
    """The allowed values of a key; `key` explains the fields."""

    least: float | None = None
    most: float | None = None
    between: tuple[float, float] | None = None
    also: tuple[float, ...] = ()
    words: str = ""
    names: Mapping[str, Any] | None = None
    optional: bool = False
    several: bool = False

    def __str__(self) -> str:
        if self.names is not None:
            head = "any of" if self.several else "one of (or empty)" if self.optional else "one of"
            return f"{head}: {', '.join(sorted(self.names))}"
        bounds = {"at least": self.least, "at most": self.most}
        return " and ".join(f"{words} {bound}" for words, bound in bounds.items() if bound is not None)


def key(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    between: tuple[float, float] | None = None,
    also: tuple[float, ...] = (),
    words: str = "",
    names: Mapping[str, Any] | None = None,
    optional: bool = False,
    several: bool = False,
) -> Any:
    """A dataclass field with a default and its allowed values.

    Args:
      default: the field's default.
      least, most: the smallest and the largest valid number. A number above `most` has no use and only fills memory.
      between: the open interval that a number must be in. also: numbers outside that are valid, too. words: both in
        words, for the error message.
      names: the registry in which a word must be an entry. optional: whether the word may be empty. several: whether
        any number of comma-separated entries is allowed.
    """
    allowed = Allowed(least, most, between, also, words, names, optional, several)
    return dataclasses.field(default=default, metadata={"allowed": allowed})


def check_keys(config: Any, prefix: str = "") -> None:
    """Raises a `UserError` for the first field whose value is not allowed, in this dataclass or in a nested one."""
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check_keys(value, f"{name}.")
        elif "allowed" in field.metadata:
            check_value(name, value, field.metadata["allowed"])


def check_value(name: str, value: Any, allowed: Allowed) -> None:
    """Raises a `UserError` for a value of the key `name` that is not allowed."""
    if allowed.names is not None:
        for entry in map(str.strip, value.split(",")) if allowed.several else [value]:
            if entry or not (allowed.optional or allowed.several):
                lookup(name, entry, allowed.names)
    if allowed.least is not None and value < allowed.least:
        raise UserError(f"config.{name} got {value}; expected at least {allowed.least}")
    if allowed.most is not None and not value <= allowed.most:
        raise UserError(f"config.{name} got {value}; expected at most {allowed.most}")
    if allowed.between and value not in allowed.also and not allowed.between[0] < value < allowed.between[1]:
        raise UserError(f"config.{name} got {value}; expected {allowed.words}")
