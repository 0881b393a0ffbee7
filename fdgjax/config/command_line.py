"""Parses the command line into a typed experiment and its folder; a mistake is reported in one line."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from fdgjax.config.making import read_config
from fdgjax.config.schema import Config, identity, seeds_of, to_plain
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.errors import UserError, unknown
from fdgjax.registry import lookup


def parse(argv: Sequence[str]) -> tuple[Config, Path]:
    """The experiment and its folder.

    Args:
      argv: the command's arguments, program name first.

    Raises:
      UserError: no or an unknown config file, an unknown flag or key, a value of the wrong type, or an invalid value.
    """
    check_config_file(argv)
    values = read_flags([argument for argument in argv if not is_override(argument)])
    set_keys(values.config, [a.lstrip("-").removeprefix("config.") for a in argv[1:] if is_override(a)])
    config = read_config(values.config)
    return config, Path(values.workdir or default_workdir(config))


def is_override(argument: str) -> bool:
    """Whether an argument sets a key of the config."""
    return argument.lstrip("-").startswith("config.")


def check_no_section(key: str, known: Iterable[str]) -> None:
    """Raises a `UserError` where a key has keys of its own."""
    inside = [name for name in known if name.startswith(f"{key}.")]
    if inside:
        raise UserError(f"config.{key} got a value but is a section; expected one of its keys: {', '.join(inside)}")


def set_keys(config: ConfigDict, words: Sequence[str]) -> None:
    """Sets keys of the config by words such as `rounds=7`; a bare `drop_last` is True.

    Raises:
      UserError: an unknown key, a section, or a value that cannot be read as the type of the key's default.
    """
    known = dict(leaves(config))
    for word in words:
        key, equals, text = word.partition("=")
        check_no_section(key, known)
        default = lookup("config key", key, known)
        value = True if not equals and isinstance(default, bool) else read_value(key, text, default)
        config.update_from_flattened_dict({key: value})


def read_value(key: str, text: str, default: Any) -> Any:
    """`text` as the type of the key's default; a `UserError` where it cannot be read."""
    expected, read = TYPES[type(default)]
    try:
        return read(text)
    except ValueError:
        raise UserError(f"config.{key} got '{text}'; expected {expected}, such as {default!r}") from None


def read_bool(value: str) -> bool:
    """True or False, as absl reads them."""
    return flags.BooleanParser().parse(value)


TYPES: Mapping[type, tuple[str, Callable[[str], Any]]] = {
    bool: ("True or False", read_bool),
    int: ("a whole number", int),
    float: ("a number", float),
    str: ("a word", str),
}


def read_flags(argv: Sequence[str]) -> flags.FlagValues:
    """absl's flags from `argv`, with their own registry so that nothing global is touched."""
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, "configs/METHOD.py[:DATASET]", flag_values=values)
    flags.DEFINE_string("workdir", "", "folder of the run", flag_values=values)
    before, sys.argv = sys.argv, list(argv)  # config_flags reads overrides there; here `set_keys` does
    try:
        rest = values(list(argv))
    except flags.Error as error:
        raise first_user_error(error) or UserError(" ".join(str(error).split()) + "; see --help") from error
    except UserError:
        raise
    except Exception as error:  # a config file is a program, which may fail in any way
        raise UserError(
            f"the file of --config cannot be run ({type(error).__name__}: {' '.join(str(error).split())}); expected a "
            "Python file with get_config(), such as configs/hfedf.py"
        ) from error
    finally:
        sys.argv = before
    if values.config is not None and not isinstance(values.config, ConfigDict):
        raise UserError(
            f"get_config() of the file of --config returned {type(values.config).__name__}; expected the ConfigDict of "
            "fdgjax.config.make_config"
        )
    if len(rest) > 1:
        raise UserError(f"got '{rest[1]}', which is no flag; expected --config.KEY=VALUE or --workdir=DIR; see --help")
    return values


def first_user_error(error: BaseException | None) -> UserError | None:
    """The `UserError` raised by a config file, the cause of an error of the flags; None where there is none."""
    found = None
    while error is not None:
        found = error if isinstance(error, UserError) else found
        error = error.__cause__ or error.__context__
    return found


def check_config_file(argv: Sequence[str]) -> None:
    """Raises a `UserError` where `--config` is missing or names no file."""
    given = [v for name, _, v in (a.lstrip("-").partition("=") for a in argv[1:]) if name == "config"]
    if not given:
        raise UserError("no --config given; expected --config=configs/METHOD.py[:DATASET], e.g. configs/hfedf.py")
    path = Path(given[-1].partition(":")[0])
    if not path.is_file():
        siblings = [str(p) for p in sorted(path.parent.glob("*.py"))] or ["configs/hfedf.py"]
        raise unknown("config file", str(path), siblings)


def leaves(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys of a nested config with their values, `data.target` style."""
    for key, value in config.items():
        if isinstance(value, ConfigDict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def usage(argv: Sequence[str]) -> str:
    """How to call the program; with a config file given, also its keys and their values."""
    lines = ["python -m fdgjax.main --config=configs/METHOD.py[:DATASET] --workdir=DIR --config.KEY=VALUE ..."]
    with_file = [a for a in argv if a.lstrip("-").startswith("config=")]
    if with_file:
        check_config_file([argv[0], *with_file])
        config = read_flags([argv[0], *with_file]).config
        lines += [f"  --config.{key}={value}" for key, value in leaves(config)]
    else:
        lines.append("give --config=FILE --help to see its keys")
    return "\n".join(lines)


def default_workdir(config: Config) -> str:
    """`runs/METHOD-DATASET-TARGET-sSEED-HASH`: each experiment has its own; several seeds: `sFIRST-LAST`."""
    content = json.dumps(identity(to_plain(config)), sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    seeds = seeds_of(config)
    named = f"s{seeds[0]}" if len(seeds) == 1 else f"s{seeds[0]}-{seeds[-1]}"
    target = config.data.target or ("first" if PROTOCOLS[config.data.protocol].unseen else config.data.protocol)
    return f"runs/{config.method.name}-{config.data.name}-{target}-{named}-{digest}"
