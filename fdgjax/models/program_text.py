"""The text of a user's program: what tells a network from another one of the same attributes.

Texts are of the program's meaning: without comments and layout, and the same in each process. What lies in other files,
such as an imported library, is known by its name alone.
"""

import ast
import dataclasses
import dis
import hashlib
import inspect
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy as np

PLAIN = (bool, int, float, complex, str, bytes)
"""Values whose `repr` is the same in each process."""
OWN_PACKAGE = __name__.partition(".")[0]


def program_text(named: Any, module: str, seen: set[int]) -> Iterator[str]:
    """The text of a function, or of a class's methods, constants and bases, and then of all functions, classes and
    constants that these name in the same module.

    Args:
      named: a function, a class, or what is read as `value_text`. module: the name of the module.
      seen: the functions and classes whose text is not to be repeated; it grows.
    """
    if isinstance(named, property | cached_property | staticmethod | classmethod | partial):
        for part in parts_of(named):
            yield from program_text(part, module, seen)
        return
    if id(named) in seen or getattr(named, "__module__", None) != module:
        return
    seen.add(id(named))
    function = inspect.unwrap(named) if callable(named) else named
    if isinstance(named, type):
        # Flax wraps the properties of a module's class.
        inner = [*(getattr(one, "wrapped", one) for one in vars(named).values()), *named.__bases__]
        yield from constants_text(named)
    elif isinstance(function, FunctionType) and function.__code__.co_filename != "<string>":  # not of a dataclass
        yield text_of(function)
        used = used_values(function)
        inner = list(used.values())
        for name, value in used.items():
            yield from value_text(name, value)
    else:
        return
    for one in inner:
        yield from program_text(one, module, seen)


def attributes_text(attributes: Iterable[Any], seen: set[int]) -> Iterator[str]:
    """The text of the functions and classes among a module's attributes, which its `repr` only names, and in lists and
    modules among them; of large arrays, which the `repr` shortens, their content."""
    for one in attributes:
        if isinstance(one, np.ndarray | jax.Array):
            yield from value_text("", one)
        elif isinstance(one, tuple | list | Mapping):
            yield from attributes_text(one.values() if isinstance(one, Mapping) else one, seen)
        elif isinstance(one, partial):
            yield from attributes_text(parts_of(one), seen)
        elif dataclasses.is_dataclass(one) and not isinstance(one, type):
            yield from attributes_text([type(one), *field_values(one)], seen)
        elif callable(one) and not is_library(inspect.unwrap(one)):
            yield from program_text(one, one.__module__, seen)


def field_values(of: Any) -> list[Any]:
    """The values of a dataclass's fields, of a Flax module those that its `repr` shows."""
    return [getattr(of, field.name, None) for field in dataclasses.fields(of) if field.repr]


def parts_of(wrapper: Any) -> list[Any]:
    """What a property, a static or class method, or a partial application is made of."""
    if isinstance(wrapper, property):
        return [wrapper.fget]
    if isinstance(wrapper, partial):
        return [wrapper.func, *wrapper.args, *wrapper.keywords.values()]
    return [wrapper.func if isinstance(wrapper, cached_property) else wrapper.__func__]


def constants_text(cls: type) -> Iterator[str]:
    """The text of a class's constants; values of fields are in an object's `repr`."""
    fields = getattr(cls, "__dataclass_fields__", {})
    for name, value in vars(cls).items():
        if not name.startswith("_") and name not in fields:
            yield from value_text(name, value)


def value_text(name: str, value: Any) -> Iterator[str]:
    """A variable's text, if it is a number, a word, an array, or a list, dict or dataclass of such, or a function of
    another name; nothing for others."""
    if isinstance(value, PLAIN):
        yield f"{name}={value!r};"
    elif isinstance(value, np.ndarray | np.generic | jax.Array) and np.asarray(value).dtype != object:
        found = np.ascontiguousarray(value)
        yield f"{name}={found.dtype}{found.shape}{hashlib.sha256(found.tobytes()).hexdigest()};"
    elif isinstance(value, tuple | list):
        for number, one in enumerate(value):
            yield from value_text(f"{name}[{number}]", one)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from value_text(f"{name}[{key!r}]" if isinstance(key, PLAIN) else name, one)
    elif isinstance(value, partial):
        yield from value_text(name, [value.func, *value.args, dict(value.keywords)])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from value_text(name, field_values(value))
    elif callable(value) and getattr(value, "__name__", name) != name:
        yield f"{name}={value.__name__};"


def used_values(function: FunctionType) -> dict[str, Any]:
    """The values of the global variables that a function uses, and of those of the functions around it."""
    named = {name: function.__globals__[name] for name in used_names(function.__code__) if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            named[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return named


def used_names(code: CodeType) -> Iterator[str]:
    """The names of global variables in a function's program, its inner functions included."""
    loaded = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    yield from (name for name in code.co_names if name in loaded)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from used_names(one)


def text_of(function: FunctionType) -> str:
    """A function's text without comments and layout, or its bytes and constants where no text is kept."""
    code = function.__code__
    try:
        if function.__name__ != "<lambda>":
            return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(function))))
        (found,) = lambdas_at(code)
        return ast.unparse(found)
    except (OSError, SyntaxError, ValueError):
        return code.co_code.hex() + repr([one for one in code.co_consts if isinstance(one, PLAIN)])


def lambdas_at(code: CodeType) -> list[ast.Lambda]:
    """The lambda expressions in the text of a program whose bodies lie where the code's last instruction does."""
    *_, (line, _, column, _) = code.co_positions()
    whole = ast.parse("".join(inspect.findsource(code)[0]))
    lambdas = [node for node in ast.walk(whole) if isinstance(node, ast.Lambda)]
    return [one for one in lambdas if (one.body.lineno, one.body.col_offset) == (line, column)]


def is_library(named: Any) -> bool:
    """Whether a function or class belongs to an installed library, to Python or to this package, and is no text of a
    user's."""
    if (getattr(named, "__module__", None) or "builtins").partition(".")[0] in (OWN_PACKAGE, "builtins"):
        return True
    try:
        file = Path(inspect.getfile(named))
    except (TypeError, OSError):  # of an interactive session, or not of Python
        return not isinstance(named, type | FunctionType)
    return any(file.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))
