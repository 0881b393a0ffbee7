"""PyTorch's files of tensors (`torch.save`), read without PyTorch and without running code.

Such a file contains a pickle, which can call any function of any module when it is loaded. Here only the names of
tensors and their storages are resolved; a file that requests anything else is refused. Since PyTorch 1.6 it is a ZIP
archive of that pickle, `data.pkl`, and of the storages, before that a stream of pickles followed by the storages.
"""

import logging
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple

import jax.numpy as jnp
import numpy as np

from fdgjax.utils.errors import UserError, reason_of

MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of a stream."""
PROTOCOL = 1001
ZIP = b"PK\3\4"
"""The first bytes of an archive."""
NESTED = ("state_dict", "model", "model_state_dict")
"""Under one of these names checkpoints of a training hold the network's tensors."""
TYPES: Mapping[str, str] = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}


class Storage(NamedTuple):
    """Numbers of one dtype that tensors are views of; they are at the end of the file under `key`."""

    key: str
    dtype: str
    size: int

    @property
    def numbers(self) -> np.dtype:
        """The dtype; JAX's `dtype` knows bfloat16, too."""
        return jnp.dtype(self.dtype)


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


def parameter(data: View, *others: Any) -> View:
    """Replaces the function that a file calls to make a parameter of a tensor."""
    del others  # whether it has gradients, and hooks
    return data


FUNCTIONS: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): view,
    ("torch._utils", "_rebuild_parameter"): parameter,
}
"""What the names of functions and classes in a file stand for; besides those of `TYPES` it may ask for no others."""


class Tensors(pickle.Unpickler):
    """An unpickler that accepts only tensors and ordered dicts, and notes the storages that it meets."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """What a known name in the file stands for; raises an `UnpicklingError` for any other name."""
        if module == "torch" and name in TYPES:
            return TYPES[name]
        if (module, name) not in FUNCTIONS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return FUNCTIONS[module, name]

    def persistent_load(self, pid: Any) -> Storage:
        """A storage by its description in the file."""
        _, dtype, key, _, size, *_ = pid
        return self.storages.setdefault(str(key), Storage(str(key), str(dtype), int(size)))


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name; of a checkpoint those under one of `NESTED`, which is logged.

    Raises:
      UserError: no such file, another format, or one that holds something besides tensors.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(len(ZIP)) == ZIP
            file.seek(0)
            held, storages = (read_archive if zipped else read_stream)(file)
            views = views_in(held, path)
            return {name: tensor(one, storages[one.storage.key]) for name, one in views.items()}
    except OSError as error:
        raise UserError(f"'{path}' cannot be read ({error.strerror}); expected a file of weights") from error
    # A damaged pickle can raise any exception.
    except Exception as error:
        reason = reason_of(error)
        raise UserError(
            f"'{path}' is no file of tensors alone ({reason}); expected one that torch.save(model.state_dict(), FILE) "
            "wrote, or a .safetensors file"
        ) from error


def views_in(held: Any, path: Path) -> Mapping[str, View]:
    """The tensors by name in what a file holds; raises an `UnpicklingError` for anything else."""
    if not isinstance(held, dict):
        raise pickle.UnpicklingError("it holds no tensors by name")
    nested = [name for name in NESTED if isinstance(held.get(name), dict)]
    if len(nested) == 1:
        logging.getLogger("fdgjax").info("%s: takes the tensors under '%s'", path, nested[0])
        held = held[nested[0]]
    if others := [name for name, one in held.items() if not isinstance(one, View)]:
        raise pickle.UnpicklingError(f"'{others[0]}' is no tensor")
    return held


def read_archive(file: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """What an archive holds, and the numbers of its storages by key."""
    with zipfile.ZipFile(file) as archive:
        (pickled,) = (name for name in archive.namelist() if PurePosixPath(name).name == "data.pkl")
        folder = pickled.removesuffix("data.pkl")
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise pickle.UnpicklingError("its numbers are big-endian")
        with archive.open(pickled) as opened:
            loader = Tensors(opened)
            held = loader.load()
        return held, {key: archived(archive, f"{folder}data/{key}", one) for key, one in loader.storages.items()}


def archived(archive: zipfile.ZipFile, name: str, storage: Storage) -> np.ndarray:
    """A storage in an archive."""
    if archive.getinfo(name).file_size != storage.size * storage.numbers.itemsize:
        raise pickle.UnpicklingError(f"storage {storage.key} is not whole")
    return np.frombuffer(archive.read(name), storage.numbers)


def read_stream(file: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """What a stream holds, and the numbers of its storages by key."""
    if Tensors(file).load() != MAGIC or Tensors(file).load() != PROTOCOL:
        raise pickle.UnpicklingError("it is of another format")
    Tensors(file).load()  # sizes of numbers on the machine that wrote it
    loader = Tensors(file)
    held = loader.load()
    return held, {key: read_storage(file, loader.storages[key]) for key in Tensors(file).load()}


def read_storage(file: BinaryIO, storage: Storage) -> np.ndarray:
    """The next storage of the file: the count of its numbers, then the numbers."""
    (count,) = np.frombuffer(file.read(8), "<i8")
    content = file.read(int(count) * storage.numbers.itemsize) if count == storage.size else b""
    numbers = np.frombuffer(content, storage.numbers)
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
