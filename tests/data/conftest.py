"""Small trees of image files, and the real data sets decoded once for all tests."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import load_data
from tests.data.trees import CLASSES, DOMAINS


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two domains of three classes, two images of one colour each: red is the domain, green the class."""
    root = tmp_path / "images"
    for domain, domain_name in enumerate(DOMAINS):
        for label, class_name in enumerate(CLASSES):
            folder = root / domain_name / class_name
            folder.mkdir(parents=True)
            for number, suffix in enumerate(("png", "JPG")):
                image = Image.new("RGB", (20, 12), (100 * domain, 80 * label, 40 * number))
                image.save(folder / f"{number}.{suffix}", "png" if suffix == "png" else "jpeg")
    return root


@pytest.fixture(scope="session")
def pacs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Domains, Path]:
    """The real PACS at 32 pixels and its cache folder."""
    cache = tmp_path_factory.mktemp("pacs")
    return load_data("pacs", data_dir=str(shared_data), image_size=32, cache_dir=str(cache)), cache


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], None]:
    def write(path: Path, values: np.ndarray) -> None:
        header = np.array([0x0800 + values.ndim, *values.shape], ">u4").tobytes()
        path.write_bytes(header + values.astype(np.uint8).tobytes())

    return write
