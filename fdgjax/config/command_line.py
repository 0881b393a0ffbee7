"""Parses the command line into a typed experiment and its folder; a mistake is reported in one line."""

import difflib
import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict, config_flags

from fdgjax.config.make import changed_keys, make_config, read_config
from fdgjax.config.schema import Config, seeds_of
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.methods import METHODS
from fdgjax.utils.errors import UserError, kind_and_reason, reason_of, unknown, users_program
from fdgjax.utils.registry import lookup

A_FILE = "a Python file with get_config(), or the name of a method"
ALMOST = 0.85
"""How alike two words are, as by `difflib`, of which one is a slip of the other."""
SEPARABLE = ("--config", "--workdir", "-config", "-workdir")
"""Flags whose value may be given as the next word, instead of after `=`."""


def parse(argv: Sequence[str]) -> tuple[Config, Path]:
    """The experiment and its folder.

    Args:
      argv: the command's arguments, program name first.

    Raises:
      UserError: a missing or unknown config, an unknown flag or key, a value of the wrong type, or an invalid value.
    """
    words = joined_words(argv)
    check_words(words[1:])
    chosen, workdir = read_flags([word for word in words if not is_override(word)])
    set_keys(chosen, overrides_in(words[1:]))
    config = read_config(chosen)
    return config, Path(workdir or default_workdir(config))


def joined_words(argv: Sequence[str]) -> list[str]:
    """The arguments with `--config NAME` and `--workdir DIR` as one word each, `--config=NAME`; raises a `UserError`
    for one without its value, as the last word or before another flag."""
    for word, following in itertools.zip_longest(argv, argv[1:], fillvalue="--"):
        if word in SEPARABLE and following.startswith("--"):
            raise UserError(f"got {word} without a value; expected {word}=VALUE")
    words = iter(argv)
    return [f"{word}={next(words)}" if word in SEPARABLE else word for word in words]


def is_override(argument: str) -> bool:
    """Whether an argument sets a key of the config."""
    return argument.lstrip("-").startswith("config.")


def overrides_in(words: Sequence[str]) -> list[str]:
    """What the arguments among `words` that set a key set it to, `KEY=VALUE`."""
    return [word.lstrip("-").removeprefix("config.") for word in words if is_override(word)]


def check_words(words: Sequence[str]) -> None:
    """Raises a `UserError` for a word that is no flag, if it can tell what was meant: a config, a key, or its value."""
    before, keys = "", known_keys(words)
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if is_override(before) and "=" not in before and not word.startswith("-"):
            raise UserError(f"got '{before} {word}', two words; expected one, {before}={word}")
        config = value if name == "method" else "" if word.startswith("-") else name
        if config.partition(":")[0] in METHODS:
            raise UserError(f"got '{word}', which is no flag; expected --config={config}")
        if not is_override(word) and (meant := near_keys(name.removeprefix("config."), keys)):
            flags = [f"--config.{key}={value or 'VALUE'}" for key in meant]
            raise UserError(f"got '{word}', which is no flag; expected {' or '.join(flags)}")
        before = word


def known_keys(words: Sequence[str]) -> list[str]:
    """The keys of the config that `--config` names; FedAvg's, if it is a file or none of the package's own."""
    name = next((word.partition("=")[2].partition(":")[0] for word in words if is_config(word)), "")
    return list(leaves(make_config(name if name in METHODS else "fedavg")))


def near_keys(name: str, keys: Sequence[str]) -> list[str]:
    """The keys that a name may stand for: itself, else those that are spelt almost alike (`round`), end with its words
    (`learning_rate`, `data_dir`), contain them, or have it as their words' initials (`lr`); of the section that it
    names, if it names one."""
    section, _, last = name.rpartition(".")
    if name in keys or not last:
        return [name] if name in keys else []
    own = [key for key in keys if key.startswith(f"{section}.")] if section else keys
    parts = {key: key.rpartition(".")[2] for key in own}
    initials = {key: "".join(word[:1] for word in part.split("_")) for key, part in parts.items()}
    # A word that is a key of some section is spelt right, and lacks its section.
    alike = [] if last in parts.values() else difflib.get_close_matches(last, set(parts.values()), cutoff=ALMOST)
    return (
        [key for key, part in parts.items() if part in alike]
        or [key for key in own if f"_{key.replace('.', '_')}".endswith(f"_{last}")]
        or [key for key, part in parts.items() if f"_{last}_" in f"_{part}_"]
        or [key for key in own if len(last) > 1 and initials[key].endswith(last)]
    )


def check_no_section(key: str, known: Iterable[str]) -> None:
    """Raises a `UserError` if the key is a section, which contains further keys."""
    inside = [name for name in known if name.startswith(f"{key}.")]
    if inside:
        raise UserError(f"config.{key} got a value but is a section; expected one of its keys: {', '.join(inside)}")


def set_keys(config: ConfigDict, words: Sequence[str]) -> None:
    """Sets keys of the config by words such as `rounds=7`; a bare `drop_last` is True.

    Raises:
      UserError: an unknown key, a section, no value, or one that cannot be read as the type of the key's default.
    """
    known = leaves(config)
    for word in words:
        key, equals, text = word.partition("=")
        default = default_of(key, known)
        bare = not equals and isinstance(default, bool)
        if not (equals or bare):
            raise UserError(f"config.{key} got no value; expected {key}=VALUE")
        value = True if bare else WORDS.get((key, text)) if (key, text) in WORDS else read_value(key, text, default)
        config.update_from_flattened_dict({key: value})


def default_of(key: str, known: Mapping[str, Any]) -> Any:
    """The value of a key among all; raises a `UserError` for a section, or another word, with the keys that it may
    stand for."""
    check_no_section(key, known)
    if key not in known and (meant := near_keys(key, list(known))):
        names = " or ".join(f"'{one}'" for one in meant)
        raise UserError(f"unknown config key '{key}'; expected a key of the config; did you mean {names}?")
    return lookup("config key", key, known)


def read_value(key: str, text: str, default: Any) -> Any:
    """`text` converted to the type of the key's default; raises a `UserError` if that fails."""
    expected, read = TYPES[type(default)]
    try:
        return read(text)
    except ValueError:
        raise UserError(f"config.{key} got '{text}'; expected {expected}, such as {default!r}") from None


WORDS: Mapping[tuple[str, str], Any] = {("devices", "auto"): Config().devices}
"""Words that may be given instead of a key's value."""


def read_bool(value: str) -> bool:
    """True or False, as absl reads them."""
    return flags.BooleanParser().parse(value)


TYPES: Mapping[type, tuple[str, Callable[[str], Any]]] = {
    bool: ("True or False", read_bool),
    int: ("a whole number", int),
    float: ("a number", float),
    str: ("a word", str),
}


def read_flags(argv: Sequence[str]) -> tuple[ConfigDict, str]:
    """The config that `argv` names, and the value of `--workdir`.

    A file is run as ml_collections runs config files; a name that is not a file selects the package's own config.
    """
    given = config_word(argv)
    name, _, preset = given.partition(":")
    if Path(name).is_file():
        search_beside(Path(name))
        values = read_absl(argv)
        return as_config(values.config), values.workdir
    if name.endswith(".py"):
        siblings = [str(path) for path in sorted(Path(name).parent.glob("*.py"))]
        raise unknown("config file", name, siblings) if siblings else unknown_file(name)
    values = read_absl([word for word in argv if not is_config(word)])
    return make_config(name, *([preset] if preset else [])), values.workdir


def search_beside(file: Path) -> None:
    """Lets a file import modules from its own folder, as Python does for a script."""
    if (folder := str(file.absolute().parent)) not in sys.path:
        sys.path.insert(0, folder)


def unknown_file(name: str) -> UserError:
    """The error for a config file that does not exist, in a folder without config files."""
    own = Path(name).stem if Path(name).stem in METHODS else "hfedf"
    return UserError(
        f"there is no config file '{name}'; expected a Python file with get_config(), or the name of a method for the "
        f"package's own config, such as --config={own}"
    )


def is_config(argument: str) -> bool:
    """Whether an argument is `--config=...`."""
    return argument.startswith("-") and argument.lstrip("-").startswith("config=")


def config_word(argv: Sequence[str]) -> str:
    """The value of the last `--config`; raises a `UserError` if there is none."""
    given = [word.partition("=")[2] for word in argv[1:] if is_config(word)]
    if not given or not given[-1]:
        raise UserError("no --config given; expected --config=METHOD[:PRESET] or --config=FILE.py, e.g. hfedf:pacs")
    return given[-1]


def as_config(returned: Any) -> ConfigDict:
    """Checks what a config file returned; raises a `UserError` if it is not a `ConfigDict`."""
    if isinstance(returned, ConfigDict):
        return returned
    raise UserError(
        f"get_config() of the file of --config returned {type(returned).__name__}; expected the ConfigDict of "
        "fdgjax.config.make_config"
    )


def read_absl(argv: Sequence[str]) -> flags.FlagValues:
    """absl's flags parsed from `argv`, in a registry of their own so that no global state changes."""
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, "METHOD[:PRESET] or FILE.py[:PRESET]", flag_values=values)
    flags.DEFINE_string("workdir", "", "folder of the run", flag_values=values)
    before, sys.argv = sys.argv, list(argv)  # config_flags reads overrides there; here `set_keys` does
    try:
        with users_program("the file of --config", A_FILE):
            rest = parsed(values, argv)
    finally:
        sys.argv = before
    if len(rest) > 1:
        raise UserError(f"got '{rest[1]}', which is no flag; expected --config.KEY=VALUE or --workdir=DIR; see --help")
    return values


def parsed(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """The words of `argv` that are no flags; raises a `UserError` for an unknown flag, or what a config file refuses or
    raises."""
    try:
        rest: list[str] = values(list(argv))
    except flags.Error as error:
        causes = [error, *causes_of(error)]
        if own := [one for one in causes if isinstance(one, UserError)]:
            raise own[-1] from error
        # ml_collections and absl wrap what a file raises into errors whose words are its traceback.
        told = (one for one in causes if not isinstance(one, flags.Error) and "Traceback" not in str(one))
        cause = next(told, None)
        if cause is None:
            raise UserError(reason_of(error) + "; see --help") from error
        raise UserError(f"the file of --config cannot be run ({kind_and_reason(cause)}); expected {A_FILE}") from error
    return rest


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An error's chain of causes, the first one last."""
    while (cause := error.__cause__ or error.__context__) is not None:
        yield cause
        error = cause


def leaves(config: ConfigDict) -> dict[str, Any]:
    """All keys of a nested config, in the form `data.target`, with their values."""
    found: dict[str, Any] = flatten_dict(config.to_dict(), sep=".")
    return found


def default_workdir(config: Config) -> str:
    """`runs/METHOD-DATASET-TARGET-sSEED-HASH`, unique to the experiment; with several seeds `sFIRST-LAST`. The hash is
    of the keys that are not at their defaults, so that a key that is added to the package changes no folder."""
    digest = hashlib.sha256(json.dumps(changed_keys(config), sort_keys=True).encode()).hexdigest()[:8]
    seeds = seeds_of(config)
    named = f"s{seeds[0]}" if len(seeds) == 1 else f"s{seeds[0]}-{seeds[-1]}"
    target = config.data.target or ("first" if PROTOCOLS[config.data.protocol].unseen else config.data.protocol)
    return f"runs/{config.method.name}-{config.data.name}-{target}-{named}-{digest}"
