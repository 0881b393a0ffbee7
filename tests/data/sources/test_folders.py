import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.data.sources.decoding import decode_image
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.folders import folder_data
from fdgjax.data.sources.layouts import FolderLayout
from fdgjax.data.sources.loading import load_data
from fdgjax.data.sources.source import png
from fdgjax.utils.errors import UserError
from tests.data.trees import CLASSES, DOMAINS

PACS = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}


def encoded(image: Image.Image, tmp_path: Path, form: str) -> bytes:
    path = tmp_path / f"image.{form}"
    image.save(path)
    return path.read_bytes()


@pytest.mark.slow
def test_real_pacs_is_whole(pacs: tuple[Domains, Path]) -> None:
    data, _ = pacs
    assert data.domain_names == tuple(PACS)
    assert data.class_names == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert np.bincount(data.domains).tolist() == list(PACS.values())
    assert data.inputs.shape == (9991, 32, 32, 3)


@pytest.fixture(scope="module")
def few_of_pacs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with some images of each domain and class of the real PACS."""
    root = tmp_path_factory.mktemp("few")
    for folder in (shared_data / "PACS").glob("*/*"):
        for file in sorted(folder.iterdir())[::60]:
            copy = root / file.relative_to(shared_data)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    return root


@pytest.mark.slow
def test_pacs_decodes_each_file_as_pillow_does(few_of_pacs: Path, tmp_path: Path) -> None:
    data = load_data("pacs", data_dir=str(few_of_pacs), image_size=32, cache_dir=str(tmp_path))
    for domain, label in itertools.product(range(4), range(7)):
        folder = few_of_pacs / "PACS" / data.domain_names[domain] / data.class_names[label]
        rows = np.flatnonzero((data.domains == domain) & (data.labels == label))
        for row, file in zip(rows, sorted(folder.iterdir()), strict=True):
            with Image.open(file) as image:
                expected = image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
            np.testing.assert_array_equal(data.inputs[row], np.asarray(expected))


def test_pacs_is_found_from_its_own_folder_too(few_of_pacs: Path, tmp_path: Path) -> None:
    data, again = (
        load_data("pacs", data_dir=str(folder), image_size=32, cache_dir=str(tmp_path))
        for folder in (few_of_pacs, few_of_pacs / "PACS")
    )
    assert isinstance(data.inputs, np.memmap)
    assert isinstance(again.inputs, np.memmap)
    assert again.inputs.filename == data.inputs.filename


def test_named_data_set_orders_domains_and_classes_as_named(tree: Path) -> None:
    find = folder_data(FolderLayout(folder="images", domains=DOMAINS[::-1], classes=CLASSES[::-1]))
    for data_dir in (tree, tree.parent):
        source = find(str(data_dir))
        assert (source.domain_names, source.class_names) == (DOMAINS[::-1], CLASSES[::-1])
        assert source.samples == 12
        for example in source.examples():
            path = Path(example.file)
            assert (path.parent.parent.name, path.parent.name) == (
                source.domain_names[example.domain],
                source.class_names[example.label],
            )


def test_hidden_and_foreign_files_are_passed_over(tree: Path) -> None:
    (tree / ".git" / "objects").mkdir(parents=True)
    (tree / "README.md").write_text("")
    (tree / DOMAINS[0] / CLASSES[0] / "notes.txt").write_text("")
    (tree / DOMAINS[0] / CLASSES[0] / "._0.png").write_text("")
    (tree / DOMAINS[0] / ".ipynb_checkpoints").mkdir()
    source = folder_data(FolderLayout())(str(tree))
    assert (source.samples, source.domain_names, source.class_names) == (12, DOMAINS, CLASSES)


def test_empty_class_is_allowed(tree: Path) -> None:
    for path in (tree / DOMAINS[0] / CLASSES[1]).iterdir():
        path.unlink()
    assert folder_data(FolderLayout())(str(tree)).samples == 10


def test_missing_class_empty_domain_and_surplus_class_are_named(tree: Path) -> None:
    named = folder_data(FolderLayout(domains=DOMAINS, classes=CLASSES[:2]))
    with pytest.raises(UserError, match=r"surplus class folder owl in .*night sky"):
        named(str(tree))
    shutil.rmtree(tree / DOMAINS[1] / CLASSES[1])
    with pytest.raises(UserError, match=r"no class folder dog in .*sketch-2"):
        folder_data(FolderLayout())(str(tree))
    for name in CLASSES:
        shutil.rmtree(tree / DOMAINS[1] / name, ignore_errors=True)
        (tree / DOMAINS[1] / name).mkdir()
    with pytest.raises(UserError, match=r"no images in .*sketch-2"):
        folder_data(FolderLayout())(str(tree))


def test_missing_folders_say_what_was_looked_for(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(UserError, match=r"dir got ''.*PACS/<domain>/<class>.*; `fdgjax data pacs --dir DIR`"):
        load_data("pacs", image_size=32)
    with pytest.raises(UserError, match=r"got .*nowhere, which is no folder"):
        load_data("pacs", data_dir=str(tmp_path / "nowhere"), image_size=32)
    with pytest.raises(UserError, match=r"art_painting.* in .*PACS or .*; `fdgjax data pacs --dir "):
        load_data("pacs", data_dir=str(tree), image_size=32)
    (tmp_path / "PACS" / "photo").mkdir(parents=True)
    with pytest.raises(UserError, match=r"no folder 'art_painting' in .*PACS: expected"):
        load_data("pacs", data_dir=str(tmp_path), image_size=32)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no domain folders"):
        load_data("folder", data_dir=str(tmp_path / "empty"), image_size=32)


@pytest.mark.parametrize(
    ("mode", "form"),
    [("L", "png"), ("P", "png"), ("1", "png"), ("RGBA", "png"), ("CMYK", "jpg"), ("L", "jpg")],
)
def test_every_colour_mode_becomes_rgb(tmp_path: Path, mode: str, form: str) -> None:
    image = Image.new("RGB", (6, 6), (255, 255, 255)).convert(mode)
    decoded = decode_image(encoded(image, tmp_path, form), 6, 3)
    assert (decoded.shape, decoded.dtype) == ((6, 6, 3), np.uint8)
    np.testing.assert_allclose(decoded, 255, atol=1)


def test_sixteen_bits_keep_their_range() -> None:
    grey = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    np.testing.assert_array_equal(decode_image(png(grey), 8, 1)[..., 0], grey >> 8)


def test_resizing_averages_instead_of_dropping_pixels() -> None:
    stripes = np.tile(np.array([0, 255], np.uint8), (32, 16))
    np.testing.assert_allclose(decode_image(png(stripes), 4, 1), 127.5, atol=12)
