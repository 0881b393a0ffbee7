"""User-defined data sets made of arrays: images and labels for each domain."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.data.sources.domains import Domains
from fdgjax.utils.errors import UserError

Arrays = Mapping[str, tuple[Any, Any]]
"""`{domain: (images, labels)}`: images uint8 `[n, H, W, channels]`, labels whole numbers `[n]` from 0."""


def domains_of(arrays: Arrays, classes: Sequence[str] | None = None) -> Domains:
    """A data set made of one copy of the arrays, in the order of the domains.

    Args:
      arrays: images and labels by domain, as anything that NumPy converts to arrays.
      classes: the names of the classes, in the order of the labels; None for the numbers from 0 to the largest label.

    Raises:
      UserError: fewer than two domains, a domain without a name or images, or arrays of another type or shape.
    """
    if not isinstance(arrays, Mapping) or len(arrays) < 2:
        got = f"{len(arrays)} domain(s)" if isinstance(arrays, Mapping) else type(arrays).__name__
        raise UserError(
            f"data got {got}; expected at least two domains, a dict {{name: (images, labels)}}: one is unseen, or each "
            "is a client"
        )
    pairs = {name: checked_arrays(name, pair) for name, pair in arrays.items()}
    first, (pixels, _) = next(iter(pairs.items()))
    for name, (images, _) in pairs.items():
        if images.shape[1:] != pixels.shape[1:]:
            raise UserError(
                f"data['{name}'] has images of {list(images.shape[1:])} and data['{first}'] of "
                f"{list(pixels.shape[1:])}; expected one [H, W, channels] for all; resize them"
            )
    labels = np.concatenate([own for _, own in pairs.values()])
    names = tuple(map(str, range(int(labels.max()) + 1) if classes is None else classes))
    if labels.max() >= len(names):
        raise UserError(
            f"data has the label {labels.max()}, but {len(names)} classes; expected labels from 0 to {len(names) - 1}"
        )
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(f"data has the classes {', '.join(names)}; expected at least two different ones")
    return Domains(
        inputs=np.concatenate([images for images, _ in pairs.values()]),
        labels=labels,
        domains=np.repeat(np.arange(len(pairs), dtype=np.int32), [len(own) for _, own in pairs.values()]),
        domain_names=tuple(pairs),
        class_names=names,
    )


def checked_arrays(name: object, pair: Any) -> tuple[np.ndarray, np.ndarray]:
    """A domain's images and labels, int32; raises like `domains_of`."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"data has a domain called {name!r}; expected a word, such as 'photo'")
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise UserError(f"data['{name}'] got {type(pair).__name__}; expected a pair (images, labels)")
    images, labels = np.asarray(pair[0]), np.asarray(pair[1])
    if images.dtype != np.uint8:
        raise UserError(
            f"data['{name}'] has images of {images.dtype}; expected uint8, bytes from 0 to 255; of numbers in [0, 1] "
            "make (255 * images).round().astype('uint8')"
        )
    if images.ndim != 4 or 0 in images.shape:
        grey = "; of grey images [n, H, W] make images[..., None]" if images.ndim == 3 else ""
        raise UserError(f"data['{name}'] has images {list(images.shape)}; expected [n, H, W, channels]{grey}")
    if hint := channels_first(images.shape):
        raise UserError(f"data['{name}'] has images {list(images.shape)}; expected [n, H, W, channels]{hint}")
    if labels.shape != images.shape[:1]:
        raise UserError(f"data['{name}'] has labels {list(labels.shape)} for {len(images)} images; expected one each")
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        least = f" from {labels.min()}" if np.issubdtype(labels.dtype, np.integer) else ""
        raise UserError(
            f"data['{name}'] has labels of {labels.dtype}{least}; expected whole numbers from 0, one for each class"
        )
    return images, labels.astype(np.int32)


def channels_first(shape: Sequence[int]) -> str:
    """What to do about images that are evidently PyTorch's `[n, channels, H, W]`; '' for others."""
    if len(shape) == 4 and shape[1] in (1, 3) and min(shape[2:]) > 4:
        return "; of [n, channels, H, W] make np.transpose(images, (0, 2, 3, 1))"
    return ""


def arrays_name(data: Domains) -> str:
    """A name that changes with anything in the data set: `arrays-` and 12 hexadecimal digits."""
    digest = hashlib.sha256(repr((data.inputs.shape, data.domain_names, data.class_names)).encode())
    for array in (data.inputs, data.labels, data.domains):
        digest.update(np.ascontiguousarray(array).data)
    return f"arrays-{digest.hexdigest()[:12]}"


def unresized(data: Domains, name: str, image_size: int) -> Domains:
    """A registered data set of arrays, which are never resized.

    Raises:
      UserError: `image_size` requests another size.
    """
    height, width, _ = data.inputs.shape[1:]
    if image_size and not image_size == height == width:
        raise UserError(
            f"config.data.image_size got {image_size}, but the images of '{name}' are arrays of {height}x{width}; "
            "expected 0; resize the arrays"
        )
    return data
