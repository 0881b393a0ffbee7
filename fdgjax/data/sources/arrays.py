"""User-defined data sets made of arrays: inputs and labels for each domain."""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.given_splits import EXPECTED, unknown_split
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.rounding import check_labels_kept
from fdgjax.utils.errors import UserError, few, printable

LOGGER = logging.getLogger("fdgjax")
DIGESTED = 2**26
"""Bytes of inputs up to which all of them are read for `content_digest`: a tenth of a second's work."""
MOST_CLASSES = 100_000
"""Larger labels are numbers or identifiers: no network has an output for each number below them."""


class DomainArrays(NamedTuple):
    """A domain's arrays, as anything that NumPy converts to arrays.

    inputs: images uint8 `[n, H, W, channels]`, or numbers `[n, ...]` of any shape, such as features `[n, m]` or series
      `[n, time, channels]`.
    labels: whole numbers `[n]` from 0, or, for `config.task=regression`, floats `[n]`.
    groups: words or whole numbers `[n]`: samples of one group are alike, such as a patient's, and stay together in
      every split (`fdgjax.data.groups`); None for samples that are not grouped.
    splits: words `[n]`, `train`, `validation` or `test`: what each sample is for (`fdgjax.data.given_splits`); None to
      hold samples out at random.
    owners: words or whole numbers `[n]`: which client has each sample; None to deal them.
    """

    inputs: Any
    labels: Any
    groups: Any = None
    splits: Any = None
    owners: Any = None


Arrays = Mapping[str, tuple[Any, ...] | Mapping[str, Any]]
"""The arrays of `DomainArrays` by domain: `{domain: (inputs, labels)}`, `{domain: (inputs, labels, groups)}`, or by
their names, `{domain: {"inputs": ..., "labels": ..., "splits": ...}}`."""


@dataclasses.dataclass(frozen=True, eq=False)
class GivenData:
    """A user's arrays as an entry of `fdgjax.data.sources.loading.DATASETS`: the data set, whatever the folder."""

    found: Domains

    def __call__(self, data_dir: str) -> Domains:
        """The data set."""
        del data_dir
        return self.found


def domains_of(arrays: Arrays, classes: Sequence[str] | None = None) -> Domains:
    """A data set made of one copy of the arrays, in the order of the domains.

    Args:
      arrays: see `Arrays`.
      classes: the names of the classes, in the order of the labels; None for the numbers from 0 to the largest label,
        and for labels that are floats.

    Raises:
      UserError: fewer than two domains, a domain without a name or samples, arrays of another type or shape, labels
        that are floats and that float32 rounds by much of their spread, or groups, splits or owners of some domains
        alone.
    """
    if not isinstance(arrays, Mapping) or len(arrays) < 2:
        got = f"{len(arrays)} domain(s)" if isinstance(arrays, Mapping) else type(arrays).__name__
        raise UserError(
            f"data got {got}; expected at least two domains, a dict {{name: (inputs, labels)}}: one is unseen, or each "
            "is a client"
        )
    # NumPy's words have another `repr`, from which the digest is made.
    given = {f"{name}": given_arrays(name, own) for name, own in arrays.items()}
    pairs = {name: checked_arrays(name, own) for name, own in given.items()}
    check_alike(pairs)
    domains = np.repeat(np.arange(len(pairs), dtype=np.int32), [len(own) for _, own in pairs.values()])
    words = {field: found for field in DomainArrays._fields[2:] if (found := words_of_all(given, field))}
    labels, inputs = checked_labels(pairs), np.concatenate([inputs for inputs, _ in pairs.values()])
    if labels.dtype == np.float32:
        if classes is not None:
            raise UserError(
                f"data has labels that are floats, and the classes {', '.join(map(str, classes))}; expected no names"
            )
        return Domains(inputs, labels, domains, tuple(pairs), ("label",)).said(words)
    if isinstance(classes, str):
        raise UserError(f"data has the classes {classes!r}, a single word; expected a list of names")
    if classes is None and labels.max() >= MOST_CLASSES:
        raise UserError(
            f"data has labels up to {labels.max()}, each of which would be a class; expected whole numbers from 0, one "
            "for each class: classes, numbers = np.unique(labels, return_inverse=True); or floats for "
            "config.task=regression"
        )
    names = tuple(map(str, range(int(labels.max()) + 1) if classes is None else classes))
    if labels.max() >= len(names):
        raise UserError(
            f"data has the label {labels.max()}, but {len(names)} classes; expected labels from 0 to {len(names) - 1}"
        )
    if empty := [name for number, name in enumerate(names) if not (labels == number).any()]:
        LOGGER.warning(
            f"no sample of {printable(few(empty))} in any domain of the data: the model has an output for each of the "
            f"{len(names)} classes; labels begin at 0"
        )
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(f"data has the classes {', '.join(names)}; expected at least two different ones")
    return Domains(inputs, labels, domains, tuple(pairs), names).said(words)


def check_alike(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Raises a `UserError` unless the samples of all domains have one shape and type."""
    first, (inputs, _) = next(iter(pairs.items()))
    for name, (others, _) in pairs.items():
        if others.shape[1:] != inputs.shape[1:]:
            kind, shape = ("images", "[H, W, channels]") if inputs.dtype == np.uint8 else ("samples", "shape")
            raise UserError(
                f"data['{name}'] has {kind} of {list(others.shape[1:])} and data['{first}'] of "
                f"{list(inputs.shape[1:])}; expected one {shape} for all; resize them"
            )
        if others.dtype != inputs.dtype:
            raise UserError(
                f"data['{name}'] has {others.dtype} and data['{first}'] {inputs.dtype}; expected images (uint8) or "
                "numbers for all; of numbers in [0, 1] make (255 * images).round().astype('uint8')"
            )


def given_arrays(name: object, own: Any) -> DomainArrays:
    """A domain's arrays as they are; raises like `domains_of` for other than `Arrays` has."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"data has a domain called {name!r}; expected a word, such as 'photo'")
    if isinstance(own, Mapping):
        if {"inputs", "labels"} <= own.keys() <= set(DomainArrays._fields):
            return DomainArrays(**own)
        raise UserError(
            f"data['{name}'] has the arrays {', '.join(map(str, own)) or 'none'}; expected inputs and labels, perhaps "
            "groups, splits and owners"
        )
    if not isinstance(own, tuple | list) or not 2 <= len(own) <= len(DomainArrays._fields):
        raise UserError(
            f"data['{name}'] got {type(own).__name__}; expected a pair (inputs, labels), (inputs, labels, groups), or "
            "a dict with these names, and splits and owners"
        )
    return DomainArrays(*own)


def checked_arrays(name: str, own: DomainArrays) -> tuple[np.ndarray, np.ndarray]:
    """A domain's inputs, uint8 or float32, and its labels as they are; raises like `domains_of`."""
    if any(np.ma.is_masked(part) for part in own):
        raise UserError(f"data['{name}'] has a masked array with masked values; expected values; fill or remove them")
    inputs, labels = np.asarray(own.inputs), np.asarray(own.labels)
    inputs = checked_images(name, inputs) if inputs.dtype == np.uint8 else checked_numbers(name, inputs)
    check_one_each(f"data['{name}']", inputs, labels)
    return inputs, labels


def check_one_each(whose: str, inputs: np.ndarray, labels: np.ndarray, kind: str = "labels") -> None:
    """Raises a `UserError` unless there is one label for each sample; whose: the data or file in words; kind: what the
    labels are."""
    if labels.shape != (len(inputs),):
        raise UserError(f"{whose} has {kind} {list(labels.shape)} for {len(inputs)} samples; expected one each")


def words_of_each(whose: str, own: DomainArrays, field: str) -> list[str]:
    """The groups, splits or owners of a domain's samples as words; raises a `UserError` unless there is one for each, a
    word or a whole number, of splits one of `fdgjax.data.given_splits.FIELD_OF`. whose: the arrays in words."""
    found = np.asarray(getattr(own, field))
    check_one_each(whose, own.inputs, found, field)
    if not all(isinstance(one, str | int) for one in found.tolist()):
        raise UserError(
            f"{whose} has {field} of {found.dtype}, such as {found[0]!r}; expected a word or a whole number for each "
            "sample"
        )
    words = [str(one) for one in found.tolist()]
    if field == "splits" and (wrong := unknown_split(words)) is not None:
        raise UserError(f"{whose} has the split '{printable(words[wrong])}'; expected {EXPECTED} for each sample")
    return words


def words_of_all(given: Mapping[str, DomainArrays], field: str) -> list[str] | None:
    """The groups, splits or owners of all samples as words; None if no domain has any. Raises like `domains_of`."""
    having = [name for name, own in given.items() if getattr(own, field) is not None]
    if not having:
        return None
    if lacking := [name for name in given if name not in having]:
        raise UserError(
            f"data['{lacking[0]}'] has no {field}, and data['{having[0]}'] has; expected {field} of each domain, or of "
            "none"
        )
    return [word for name, own in given.items() for word in words_of_each(f"data['{name}']", own, field)]


def checked_labels(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The labels of all domains: numbers, float32, if those of every domain are floats, else int32; raises like
    `domains_of`."""
    floats = all(np.issubdtype(labels.dtype, np.floating) for _, labels in pairs.values())
    for name, (_, labels) in pairs.items():
        whole = np.issubdtype(labels.dtype, np.integer)
        if not np.issubdtype(labels.dtype, np.number):
            raise UserError(
                f"data['{name}'] has labels of {labels.dtype}, such as {labels[0]!r}; expected whole numbers from 0, "
                "one for each class; with words: classes, numbers = np.unique(labels, return_inverse=True)"
            )
        with np.errstate(over="ignore"):
            kept = labels.astype(np.float32 if floats else np.int32)
        if floats and not np.isfinite(kept).all():
            raise UserError(f"data['{name}'] has labels that are not finite; expected a number for each sample")
        if not floats and (not whole or labels.min() < 0 or (kept != labels).any()):
            least = f" from {labels.min()} to {labels.max()}" if whole else ""
            raise UserError(
                f"data['{name}'] has labels of {labels.dtype}{least}; expected whole numbers from 0, one for each "
                "class, or floats in every domain for config.task=regression"
            )
    found = np.concatenate([labels for _, labels in pairs.values()])
    if floats:
        check_labels_kept("the label of data", found)
    return found.astype(np.float32 if floats else np.int32)


def checked_images(name: str, images: np.ndarray) -> np.ndarray:
    """Images uint8 `[n, H, W, channels]`; raises like `domains_of` for another shape."""
    if images.ndim != 4 or 0 in images.shape:
        grey = "; of grey images [n, H, W] make images[..., None]" if images.ndim == 3 else ""
        raise UserError(
            f"data['{name}'] has images {list(images.shape)}; expected [n, H, W, channels]{grey}; numbers that are no "
            "image are float32"
        )
    if hint := channels_first(images.shape):
        raise UserError(f"data['{name}'] has images {list(images.shape)}; expected [n, H, W, channels]{hint}")
    return images


def checked_numbers(name: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers as float32 `[n, ...]`; raises like `domains_of` for other values or another shape."""
    if not (np.issubdtype(numbers.dtype, np.number) or numbers.dtype == bool) or np.iscomplexobj(numbers):
        raise UserError(f"data['{name}'] has inputs of {numbers.dtype}; expected numbers, or bytes of images (uint8)")
    if numbers.ndim < 2 or 0 in numbers.shape:
        raise UserError(
            f"data['{name}'] has inputs {list(numbers.shape)}; expected [n, ...], such as [n, features] or "
            "[n, time, channels]; of [n] make inputs[:, None]"
        )
    with np.errstate(over="ignore"):
        found = numbers.astype(np.float32)
    if not np.isfinite(found).all():
        raise UserError(
            f"data['{name}'] has {int((~np.isfinite(found)).sum()):,} inputs that are not finite; expected numbers; a "
            "table with missing values is given as a file: --config=METHOD:table"
        )
    return found


def channels_first(shape: Sequence[int]) -> str:
    """What to do about images that are evidently PyTorch's `[n, channels, H, W]`; '' for others."""
    if len(shape) == 4 and shape[1] in (1, 3) and min(shape[2:]) > 4:
        return "; of [n, channels, H, W] make np.transpose(images, (0, 2, 3, 1))"
    return ""


def arrays_name(data: Domains) -> str:
    """A name that changes with anything in the data set: `arrays-` and 12 hexadecimal digits."""
    return f"arrays-{digest(data)}"


def content_digest(data: Domains) -> str:
    """What tells a data set from another one: 12 hexadecimal digits, of all samples or, beyond `DIGESTED` bytes of
    inputs, of so many evenly spaced ones with all labels."""
    return digest(data, every=1 + data.inputs.nbytes // DIGESTED)


def digest(data: Domains, every: int = 1) -> str:
    """12 hexadecimal digits of the names, the labels, the domains, what is said of each sample, and each `every`-th
    sample's inputs."""
    names = (*data.columns, *((data.owners.names,) if data.owners else ()))
    found = hashlib.sha256(repr((data.inputs.shape, data.domain_names, data.class_names, *names)).encode())
    said = (*(() if data.groups is None else (data.groups,)), *(data.splits or ()), *(data.owners or ())[:1])
    for array in (data.inputs[::every], data.labels, data.domains, *said):
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:12]


def unresized(data: Domains, name: str, image_size: int) -> Domains:
    """A data set of arrays or tables, which are never resized.

    Raises:
      UserError: `image_size` requests another size.
    """
    shape = data.inputs.shape[1:]
    if image_size and (not data.images or (image_size, image_size) != shape[:2]):
        kind = f"images of '{name}' are arrays" if data.images else f"samples of '{name}' are"
        raise UserError(
            f"config.data.image_size got {image_size}, but the {kind} of {'x'.join(map(str, shape[:2]))}; expected 0"
            + ("; resize the arrays" if data.images else "")
        )
    return data
