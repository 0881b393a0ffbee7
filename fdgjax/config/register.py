"""User-defined methods, models, data sets, augmentations, figures and robust rules, registered under names that configs
and the command line accept; `fdgjax --with FILE` runs a file that registers some.

What a run used of them is recorded in its `config.json`, see `fdgjax.config.provenance`.
"""

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fdgjax.aggregation.robust import OF_UPDATES, majority, users_rule
from fdgjax.config.command_line import search_beside
from fdgjax.config.presets import PRESETS
from fdgjax.data.augmentations.training import AUGMENTATIONS
from fdgjax.data.augmentations.view import View, same_shape
from fdgjax.data.sources import arrays as arrays
from fdgjax.data.sources.loading import DATASETS
from fdgjax.engine.robustness.defences import RULES
from fdgjax.evaluation.metrics import figure_keys
from fdgjax.evaluation.probability_figures import FIGURES, Figure, Of, keys_of
from fdgjax.methods import METHODS, Entry
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.utils.errors import UserError, users_program
from fdgjax.utils.registry import Registry, lookup, register

if TYPE_CHECKING:
    from fdgjax.models.user_module import Network

REGISTRIES: Mapping[str, Registry[Any]] = {
    "method.name": METHODS,
    "model.name": MODELS,
    "data.name": DATASETS,
    "data.augmentation": AUGMENTATIONS,
    "figures": FIGURES,
    "defence.rule": RULES,
}
"""The registries that a user's program may add to, by the config key that names an entry, or several."""

OF_SAMPLES = "a function (labels, probabilities, threshold) -> number"
"""What computes a figure, in words."""


def register_method(entry: Entry, origin: str | None = None) -> str:
    """Registers a method by its entry, an `fdgjax.methods.Entry` as in the package's own methods.

    Args:
      entry: the entry; it replaces one of the same name that a program registered before.
      origin: the file that registers it, recorded in `config.json`; None for the caller's file.

    Returns:
      Its name.

    Raises:
      UserError: `entry` is not an `Entry`, or one with a wrong field (`Entry.check`), has the name of one of the
        package's methods, or needs a unit or a head that does not exist.
    """
    if not isinstance(entry, Entry):
        raise UserError(f"the method got {type(entry).__name__}; expected an fdgjax.Entry(name, hyper, make, summary)")
    entry.check()
    for kind, word, known in (("unit", entry.unit, UNITS), ("head", entry.head, HEADS)):
        if word:
            lookup(f"{kind} of method '{entry.name}'", word, known)
    return register(METHODS, entry.name, entry, origin)


def register_model(name: str, network: "Network", origin: str | None = None) -> str:
    """Registers a network under a name, for `config.model.name`.

    Args:
      name: the name; '' for one derived from the module's class and attributes.
      network: a linen module, called as `module(images, train=...)`; an nnx module, wrapped by
        `flax.nnx.bridge.to_linen`; or a function from the number of outputs to such a module.
      origin: as for `register_method`.

    Returns:
      Its name.

    Raises:
      UserError: `network` is not a network, or `name` is that of one of the package's networks.
    """
    from fdgjax.models import user_module as networks  # loads flax.nnx, a tenth of the import time, which few runs need

    return register(MODELS, name or networks.module_name(network), networks.backbone_of(network), origin)


def register_data(
    name: str, data: arrays.Arrays, classes: Sequence[str] | None = None, origin: str | None = None
) -> str:
    """Registers arrays as a data set under a name, for `config.data.name`; they stay in memory from then on.

    Args:
      name: the name; '' for one derived from the content of the arrays.
      data: `{domain: (images, labels)}`, see `fdgjax.data.sources.arrays.domains_of`.
      classes: the names of the classes, in the order of the labels.
      origin: as for `register_method`.

    Returns:
      Its name.

    Raises:
      UserError: arrays that do not form a data set, or the name of one of the package's data sets or presets.
    """
    found = arrays.domains_of(data, classes)
    if name in PRESETS and name not in DATASETS.own:
        raise UserError(f"the name of a data set got '{name}', which is a preset's; expected another")
    return register(REGISTRIES["data.name"], name or arrays.arrays_name(found), arrays.GivenData(found), origin)


def register_augmentation(name: str, view: View, origin: str | None = None) -> str:
    """Registers an augmentation of training samples under a name, for `config.data.augmentation`.

    Args:
      name: the name.
      view: `(key, inputs [batch, ...]) -> inputs`, traced by JAX; images are float32 `[batch, H, W, channels]`, a byte
        b of a pixel being b / 127.5 - 1, rows and series are standardised. The shape stays as it is.
      origin: as for `register_method`.

    Returns:
      Its name.

    Raises:
      UserError: `view` is no function, or `name` is that of one of the package's augmentations.
    """
    if not callable(view):
        raise UserError(
            f"the augmentation '{name}' got {type(view).__name__}; expected a function (key, inputs) -> inputs"
        )
    checked = same_shape(f"the augmentation '{name}'", view)
    return register(AUGMENTATIONS, name, lambda size: checked, origin)


def register_figure(
    name: str,
    of: Of,
    *,
    title: str = "",
    larger: bool = True,
    thresholded: bool = False,
    origin: str | None = None,
) -> str:
    """Registers a figure of class probabilities under a name, for `config.figures`, and `validation:NAME` for
    `config.selection`.

    Args:
      name: the name: letters, digits and `_`.
      of: `(labels int [n], probabilities float64 [n, classes], threshold) -> number`, of samples of every class, called
        with NumPy's arrays. The threshold is that from which the second of two classes is decided for, else None.
      title: for tables; '' for the name.
      larger: whether larger values are better; the figure is then at most 1, and written in percent.
      thresholded: whether of two classes it has no value without the threshold.
      origin: as for `register_method`.

    Returns:
      Its name.

    Raises:
      UserError: `of` is no function, or `name` is that of one of the package's figures or would be taken for another
        figure of records.
    """
    if not callable(of):
        raise UserError(f"the figure '{name}' got {type(of).__name__}; expected {OF_SAMPLES}")
    if not str(name).isidentifier():
        raise UserError(f"the name of a figure got {name!r}; expected letters, digits and '_', such as 'mine'")
    others = set(figure_keys()) - set(keys_of(name) if name in FIGURES else ())
    if taken := sorted(others & set(keys_of(name))):
        raise UserError(
            f"a figure got the name '{name}', but {taken[0]} is another figure's key; expected another name"
        )
    figure = Figure(title or name, one_number(f"the figure '{name}'", of), larger=larger, thresholded=thresholded)
    return register(FIGURES, name, figure, origin)


def register_rule(
    name: str, rule: Callable[..., Any], least: Callable[[int], int] = majority, origin: str | None = None
) -> str:
    """Registers a robust rule under a name, for `config.defence.rule`.

    Args:
      name: the name.
      rule: `(updates, weights, *, hostile) -> (centre, shares)`, as the robust rules of `fdgjax.aggregation`, traced by
        JAX: the updates' leaves are `[clients, ...]`, the centre's `[...]`; a client whose weight is 0 is left out;
        `hostile` is f, the number of hostile clients to withstand; the shares `[clients]` are what `defence/share`
        records.
      least: the fewest clients with which it withstands f hostile ones; by default 2 f + 1.
      origin: as for `register_method`.

    Returns:
      Its name.

    Raises:
      UserError: `rule` is no function, or `name` is that of one of the package's rules.
    """
    if not callable(rule):
        raise UserError(f"the robust rule '{name}' got {type(rule).__name__}; expected {OF_UPDATES}")
    return register(RULES, name, users_rule(f"the robust rule '{name}'", rule, least), origin)


def one_number(what: str, of: Of) -> Of:
    """The function of a user's program, which must return a finite number.

    Raises:
      UserError: it fails, or returns something else; when it is called.
    """

    def checked(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None) -> float:
        with users_program(what, OF_SAMPLES):
            # Copies: what it writes into them would reach the figures after it.
            value = float(of(labels.copy(), probabilities.copy(), threshold))
        if not math.isfinite(value):
            raise UserError(f"{what} made {value} of {len(labels)} samples; expected a finite number")
        return value

    return checked


def run_file(word: str) -> None:
    """Runs a Python file, or imports a module, that registers entries of `REGISTRIES`; every `Entry` among its global
    variables is registered, too.

    Raises:
      UserError: the file or module does not exist, or it fails.
    """
    file = Path(word)
    is_file = word.endswith(".py") or file.is_file()
    expected = "a Python file, or the name of a module, that registers a method, a model, a data set or the like"
    with users_program(f"--with {word}", expected):
        module = of_file(file.absolute()) if is_file else importlib.import_module(word)
    for value in list(vars(module).values()):
        if isinstance(value, Entry):
            register_method(value, str(module.__file__ or ""))


def of_file(file: Path) -> Any:
    """A file loaded as a module, which may import modules from its own folder."""
    search_beside(file)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module
