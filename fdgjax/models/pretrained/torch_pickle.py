"""PyTorch's files of tensors (`torch.save`, the format before 1.6), read without PyTorch and without running code.

Such a file is a pickle, which can call any function of any module when it is loaded. Here only the names of tensors and
their storages are resolved; a file that requests anything else is refused.
"""

import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError, reason_of

MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of such a file."""
PROTOCOL = 1001
TYPES: Mapping[str, str] = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}


class Storage(NamedTuple):
    """Numbers of one dtype that tensors are views of; they are at the end of the file under `key`."""

    key: str
    dtype: str
    size: int


class View(NamedTuple):
    """A tensor: where it begins in its storage, its shape, and its strides in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def view(storage: Storage, offset: int, shape: Sequence[int], strides: Sequence[int], *others: Any) -> View:
    """Replaces the function that a file calls to make a tensor."""
    del others  # gradients and hooks
    return View(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


class Tensors(pickle.Unpickler):
    """An unpickler that accepts only tensors and ordered dicts."""

    def find_class(self, module: str, name: str) -> Any:
        """What a known name in the file stands for; raises an `UnpicklingError` for any other name."""
        if module == "torch" and name in TYPES:
            return TYPES[name]
        known = {("collections", "OrderedDict"): OrderedDict, ("torch._utils", "_rebuild_tensor_v2"): view}
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return known[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        """A storage by its description in the file."""
        _, dtype, key, _, size, _ = pid
        return Storage(str(key), str(dtype), int(size))


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name.

    Raises:
      UserError: no such file, another format, or one that holds something besides tensors.
    """
    try:
        with path.open("rb") as file:
            if Tensors(file).load() != MAGIC or Tensors(file).load() != PROTOCOL:
                raise pickle.UnpicklingError("it is of another format")
            Tensors(file).load()  # sizes of numbers on the machine that wrote it
            views: Mapping[str, View] = dict(Tensors(file).load())
            used = {one.storage.key: one.storage for one in views.values()}
            storages = {key: read_storage(file, used[key]) for key in Tensors(file).load()}
            return {name: tensor(one, storages[one.storage.key]) for name, one in views.items()}
    except OSError as error:
        raise UserError(f"'{path}' cannot be read ({error.strerror}); expected a file of weights") from error
    # A damaged pickle can raise any exception.
    except Exception as error:
        reason = reason_of(error)
        raise UserError(
            f"'{path}' is no file of tensors alone ({reason}); expected one that torch.save wrote of a state_dict in "
            "its format before 1.6, or a .safetensors file"
        ) from error


def read_storage(file: BinaryIO, storage: Storage) -> np.ndarray:
    """The next storage of the file: the count of its numbers, then the numbers."""
    (count,) = np.frombuffer(file.read(8), "<i8")
    content = file.read(int(count) * np.dtype(storage.dtype).itemsize) if count == storage.size else b""
    numbers = np.frombuffer(content, storage.dtype)
    if len(numbers) != storage.size:
        raise pickle.UnpicklingError(f"storage {storage.key} is not whole")
    return numbers


def tensor(one: View, numbers: np.ndarray) -> np.ndarray:
    """A tensor's numbers; raises an `UnpicklingError` if it would reach outside its storage."""
    last = one.offset + sum((size - 1) * stride for size, stride in zip(one.shape, one.strides, strict=True))
    if min((one.offset, last, *one.shape, *one.strides), default=0) < 0 or last >= max(len(numbers), 1):
        raise pickle.UnpicklingError("a tensor reaches outside its storage")
    strides = tuple(stride * numbers.itemsize for stride in one.strides)
    return np.lib.stride_tricks.as_strided(numbers[one.offset :], one.shape, strides).copy()
