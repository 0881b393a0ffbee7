"""Files of torch.save are read as tensors, and a file that asks for anything else is refused without running it."""

import base64
import io
import logging
import os
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fdgjax.models.pretrained import torch_pickle
from fdgjax.models.pretrained.torch_pickle import MAGIC, PROTOCOL, read_torch_file
from fdgjax.utils.errors import UserError

NUMBERS = np.arange(12, dtype="<f4")

OF_TORCH = (
    "eNqlVDFv00AUPseNE0xJGhCq6FAxBglS20mcBERDLeTFA2lQUcRiuY4bLNy4Z19SQFSKQFSCH4GYGFgZWNmQWBDMDEhMTGyIkWebuvalpAKe83xK"
    "8r7vvnv+njsaO4dQPo+mYgGdRoZn3rHH1krfIEZl566jKgV0OxWTzB5GPQbqdzFjEhcAFX1EbMfndc/aHNlOXyfW0Hc9fSzxOFMu93JQ7EOlMbAw"
    "G0F41XENcjP6kcdzIaGAsz0WVnNnhDltnuDcusbCldnHeY3R2H184qlpuo5jmcR2hz5/w+tbntW/bpuEx/yFLj5J8HwXn/IrHS2Xf/Ts/cZLoAuy"
    "88dTL6Kz8akrW663bRB9bHk+bKAqJerwEGJA/eb758eBYmYm9RJqHFL/boBuOPZguG0NiapUp9mPD7kWCGjv4m8Z2CIzU0AJtWMBm/eJ5Qb9UpUr"
    "/7LvQTg2IY4VaHhy9es5DnbhZmoooNWUq1YEVbn8HwIi1kkbbtfgAzmBfAH5FvILJFoDL0OehxTWAqX39rZWhcBgM5UW0ZlYaeyAIi21ygeMH58P"
    "No7v/zKSDg0QHt63PBsc8MAIDKzbfVWp/GUvxHpDaoqtVl0Um/WaXKsKkizU6mK92ZAEuSVLrZrckprN0KavXj8sg45yqJIJxMY6k9OxMKWcfg/Q"
    "6OQALKaQPxJoap5okqSJl1Ik6wyaMTk0T9KIpRTPpwRPPAA0POmOQgp+K4Mo79LYpA+K6RayiHbTVBMTj2c5he0mwEcbp6Nx3MUDm7GXYmSOWj8w"
    "0fqTjVbAhX+9y0bfozdYloswubA+qv0F5VNPuw=="
)
"""What PyTorch 2.13 wrote of `torch.save({"w": torch.arange(12.0).view(4, 3)[1:3].t()}, FILE)`, compressed."""


def written(path: Path, state: bytes, storages: dict[str, np.ndarray]) -> Path:
    """A file in the format of torch.save before 1.6, around a pickled state."""
    content = b"".join(pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, {"little_endian": True}))
    content += state + pickle.dumps(list(storages), 2)
    for numbers in storages.values():
        content += np.asarray(len(numbers), "<i8").tobytes() + numbers.tobytes()
    path.write_bytes(content)
    return path


def archived(path: Path, state: bytes, storages: dict[str, np.ndarray], byteorder: str = "little") -> Path:
    """A file in the format of torch.save since 1.6."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", state)
        archive.writestr("w/byteorder", byteorder)
        for key, numbers in storages.items():
            archive.writestr(f"w/data/{key}", numbers.tobytes())
    return path


def state_of(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0, size: int = 12, kind: str = "Float"
) -> bytes:
    """A state_dict of one tensor `w`, assembled opcode by opcode, as torch.save writes it."""
    ints = lambda values: b"(" + b"".join(pickle.dumps(v, 2)[2:-1] for v in values) + b"t"  # noqa: E731
    text = lambda word: b"X" + len(word).to_bytes(4, "little") + word.encode()  # noqa: E731
    pid = (
        b"("
        + text("storage")
        + f"ctorch\n{kind}Storage\n".encode()
        + text("0")
        + text("cpu")
        + ints([size])[1:-1]
        + b"NtQ"
    )
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + ints([offset])[1:-1] + ints(shape) + ints(strides)
    tensor += b"\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02ccollections\nOrderedDict\n)R(" + text("w") + tensor + b"u."


def test_tensors_are_views_of_their_storage(tmp_path: Path) -> None:
    file = written(tmp_path / "w.pth", state_of((3, 2), (1, 3), offset=2), {"0": NUMBERS})
    np.testing.assert_array_equal(read_torch_file(file)["w"], [[2, 5], [3, 6], [4, 7]])


def test_a_file_of_todays_pytorch_is_read(tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(zlib.decompress(base64.b64decode(OF_TORCH)))
    (found,) = (state := read_torch_file(tmp_path / "w.pth"))
    np.testing.assert_array_equal(state[found], [[3, 6], [4, 7], [5, 8]])


@pytest.mark.parametrize("write", [written, archived])
@pytest.mark.parametrize(("kind", "dtype"), [("Half", np.float16), ("BFloat16", ml_dtypes.bfloat16)])
def test_short_numbers(kind: str, dtype: type[np.generic], write: Callable[..., Path], tmp_path: Path) -> None:
    state, numbers = state_of((2, 3), (3, 1), offset=1, kind=kind), NUMBERS.astype(dtype)
    found = read_torch_file(write(tmp_path / "w.pth", state, {"0": numbers}))["w"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), [[1, 2, 3], [4, 5, 6]])


def test_an_archive_is_read_as_a_stream_is(tmp_path: Path) -> None:
    state = state_of((3, 2), (1, 3), offset=2)
    one, other = (f(tmp_path / "w.pth", state, {"0": NUMBERS}) for f in (written, archived))
    np.testing.assert_array_equal(read_torch_file(one)["w"], read_torch_file(other)["w"])
    for numbers, order, said in ((NUMBERS[1:], "little", "is not whole"), (NUMBERS, "big", "are big-endian")):
        with pytest.raises(UserError, match=said):
            read_torch_file(archived(tmp_path / "w.pth", state, {"0": numbers}, order))


@pytest.mark.parametrize("write", [written, archived])
def test_a_checkpoint_s_tensors_are_found_below_its_name(
    write: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # {"epoch": 3, NAME: the state_dict}
    inner, name = state_of((12,), (1,))[2:-1], lambda word: b"X" + len(word).to_bytes(4, "little") + word.encode()
    for key, said in (("state_dict", ""), ("model", ""), ("weights", r"\('epoch' is no tensor\)")):
        file = write(
            tmp_path / "w.pth", b"\x80\x02}(" + name("epoch") + b"K\x03" + name(key) + inner + b"u.", {"0": NUMBERS}
        )
        if said:
            with pytest.raises(UserError, match=said):
                read_torch_file(file)
        else:
            with caplog.at_level(logging.INFO, "fdgjax"):
                np.testing.assert_array_equal(read_torch_file(file)["w"], NUMBERS)
            assert f"takes the tensors under '{key}'" in caplog.text


@pytest.mark.parametrize("write", [written, archived])
def test_what_holds_no_tensors_by_name_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it holds no tensors by name"):
        read_torch_file(write(tmp_path / "w.pth", pickle.dumps([1, 2], 2), {}))


@pytest.mark.parametrize("write", [written, archived])
def test_nothing_of_a_hostile_file_is_run(write: Callable[..., Path], tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {tmp_path / 'run'}",)

    file = write(tmp_path / "w.pth", pickle.dumps(OrderedDict(w=Hostile()), 2), {})
    with pytest.raises(UserError, match=r"no file of tensors alone \(it asks for posix.system\)") as error:
        read_torch_file(file)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["builtins.eval", "torch.load", "numpy.load", "collections.Counter", "os.system"])
def test_no_other_name_is_found(name: str) -> None:
    module, _, what = name.rpartition(".")
    with pytest.raises(pickle.UnpicklingError, match="asks for"):
        torch_pickle.Tensors(io.BytesIO()).find_class(module, what)


@pytest.mark.parametrize(
    ("shape", "strides", "offset"), [((13,), (1,), 0), ((2,), (-1,), 0), ((2, 2), (11, 1), 0), ((1,), (1,), 12)]
)
def test_a_tensor_cannot_reach_outside_its_storage(
    tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    file = written(tmp_path / "w.pth", state_of(shape, strides, offset), {"0": NUMBERS})
    with pytest.raises(UserError, match="reaches outside its storage"):
        read_torch_file(file)


def test_what_is_cut_short_or_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = written(tmp_path / "w.pth", state_of((12,), (1,)), {"0": NUMBERS}).read_bytes()
    for kept in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.pth").write_bytes(whole[:kept])
        with pytest.raises(UserError) as error:
            read_torch_file(tmp_path / "cut.pth")
        assert "\n" not in str(error.value)
    for path in (tmp_path, tmp_path / "absent.pth"):
        with pytest.raises(UserError, match="cannot be read"):
            read_torch_file(path)
