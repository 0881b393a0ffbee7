import gzip
from collections.abc import Callable
from pathlib import Path

import chex
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from fdgjax.config import make_config, read_config
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import load_data
from fdgjax.data.sources.rotated import ANGLES, cut, read_idx, rotate, rotated_mnist
from fdgjax.utils.errors import UserError

NAMES = ("r0", "r15", "r30", "r45", "r60", "r75")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Domains:
    return load_data("rotated_digits", cache_dir=str(tmp_path_factory.mktemp("digits")))


def originals() -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = load_digits(return_X_y=True)
    return pixels.reshape(-1, 8, 8), labels


@given(samples=st.integers(6, 3000), per_domain=st.sampled_from([0, 1]))
def test_parts_are_disjoint_even_and_complete(samples: int, per_domain: int) -> None:
    parts = cut(samples, per_domain)
    rows = np.concatenate(parts)
    assert len(parts) == len(ANGLES)
    assert len(np.unique(rows)) == len(rows) == (6 * per_domain or samples)
    assert np.ptp([len(part) for part in parts]) <= 1


@pytest.mark.slow
def test_digits_use_every_image_once(digits: Domains) -> None:
    images, labels = originals()
    chex.assert_shape(digits.inputs, (1797, 8, 8, 1))
    assert digits.domain_names == NAMES
    order = np.concatenate(cut(1797))
    np.testing.assert_array_equal(digits.labels, labels[order])
    assert sorted(order.tolist()) == list(range(1797))
    # The unrotated part is the original exactly: 16 levels survive the scaling to 255 and back.
    upright = digits.inputs[digits.domains == 0, ..., 0]
    np.testing.assert_array_equal(np.rint(upright * (16 / 255)), images[cut(1797)[0]])


@pytest.mark.slow
@pytest.mark.parametrize("domain", range(6))
def test_turning_back_nearly_gives_the_original(digits: Domains, domain: int) -> None:
    images, _ = originals()
    shown = digits.inputs[digits.domains == domain, ..., 0]

    def likeness(degrees: float) -> float:
        """The mean correlation of the pixels, which does not mind that turning twice blurs."""
        turned = np.stack([rotate(image, degrees) for image in shown]).reshape(len(shown), -1)
        original = images[cut(1797)[domain]].reshape(len(shown), -1)
        return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(turned.astype(float), original, strict=True)]))

    back = [likeness(-angle) for angle in ANGLES]
    assert int(np.argmax(back)) == domain
    assert back[domain] > 0.7
    assert domain == 0 or likeness(ANGLES[domain]) < back[domain]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_quarter_turns_are_exact(times: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 7), dtype=np.uint8)
    np.testing.assert_array_equal(rotate(image, 90.0 * times), np.rot90(image, times))


@pytest.mark.slow
def test_resized_digits_have_the_size_asked_for(tmp_path: Path) -> None:
    data = load_data("rotated_digits", image_size=12, cache_dir=str(tmp_path))
    chex.assert_shape(data.inputs, (1797, 12, 12, 1))


@pytest.mark.slow
def test_real_mnist_gives_six_thousand_different_images(shared_data: Path, tmp_path: Path) -> None:
    data = load_data("rotated_mnist", data_dir=str(shared_data), cache_dir=str(tmp_path))
    chex.assert_shape(data.inputs, (6000, 28, 28, 1))
    assert data.domain_names == NAMES
    assert np.bincount(data.domains).tolist() == [1000] * 6
    assert (np.bincount(data.labels, minlength=10) > 300).all()
    upright = {image.tobytes() for image in data.inputs[data.domains == 0]}
    stored = read_idx(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz", 3)
    assert len(upright) == 1000
    assert upright <= {image.tobytes() for image in stored}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "per_domain"), [("rotated_digits", 300), pytest.param("rotated_mnist", 1000, marks=pytest.mark.slow)]
)
def test_domains_of_the_same_images_are_one_part_turned(
    name: str, per_domain: int, shared_data: Path, tmp_path: Path
) -> None:
    folder = str(shared_data) if name == "rotated_mnist" else ""
    own = load_data(name, data_dir=folder, cache_dir=str(tmp_path))
    same = load_data(name, data_dir=folder, cache_dir=str(tmp_path), same_images=True)
    assert np.bincount(same.domains).tolist() == [per_domain] * 6
    images, labels = (values.reshape(6, per_domain, *values.shape[1:]) for values in (same.inputs, same.labels))
    assert (labels == labels[0]).all()
    np.testing.assert_array_equal(images[0], own.inputs[own.domains == 0])
    for shown, angle in zip(images, ANGLES, strict=True):
        np.testing.assert_array_equal(shown[0, ..., 0], rotate(images[0, 0, ..., 0], angle))


def test_only_rotated_data_sets_can_show_the_same_images(tmp_path: Path) -> None:
    config = make_config("fedavg", "pacs")
    config.data.same_images = True
    with pytest.raises(UserError, match=r"config.data.same_images got True.*name=pacs.*expected False, or"):
        read_config(config)


def test_training_files_come_before_test_files(tmp_path: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    assert_part(tmp_path, "t10k", write_idx)
    assert_part(tmp_path, "train", write_idx)


def assert_part(folder: Path, part: str, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    write_idx(folder / f"{part}-images-idx3-ubyte", np.zeros((6000, 28, 28)))
    write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(6000) % 10)
    source = rotated_mnist(str(folder))
    assert f"({part} files)" in source.description
    assert next(source.examples()).label in range(10)


def test_idx_round_trip(tmp_path: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 4, 5))
    write_idx(tmp_path / "plain", values)
    (tmp_path / "zipped.gz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    np.testing.assert_array_equal(read_idx(tmp_path / "plain", 3), values)
    np.testing.assert_array_equal(read_idx(tmp_path / "zipped.gz", 3), values)


@given(fraction=st.floats(0, 1, exclude_max=True))
def test_truncated_idx_is_a_user_error(tmp_path_factory: pytest.TempPathFactory, fraction: float) -> None:
    values = np.random.default_rng(0).integers(0, 256, 60, dtype=np.uint8)
    content = np.array([0x0803, 3, 4, 5], ">u4").tobytes() + values.tobytes()
    path = tmp_path_factory.mktemp("idx") / "plain"
    for stored, file in ((content, path), (gzip.compress(content), path.with_suffix(".gz"))):
        file.write_bytes(stored[: int(fraction * len(stored))])
        with pytest.raises(UserError, match="fetch it again"):
            read_idx(file, 3)


def test_wrong_idx_files_are_user_errors(tmp_path: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    images, labels = (tmp_path / f"train-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    with pytest.raises(UserError, match="has no train- or t10k"):
        rotated_mnist(str(tmp_path))
    with pytest.raises(UserError, match="dir got ''"):
        rotated_mnist("")
    write_idx(labels, np.zeros(10))
    for wrong in (np.zeros((10, 28, 28)), np.zeros((6000, 8, 8)), np.zeros((6000, 28, 28))):
        write_idx(images, wrong)
        with pytest.raises(UserError, match="expected at least 6000"):
            load_data("rotated_mnist", data_dir=str(tmp_path), cache_dir=str(tmp_path / "cache"))
    write_idx(labels, np.full(6000, 10))
    with pytest.raises(UserError, match="label 10"):
        rotated_mnist(str(tmp_path)).examples()
    images.write_bytes(b"not an idx file, but long enough")
    with pytest.raises(UserError, match="expected an IDX file"):
        rotated_mnist(str(tmp_path)).examples()
