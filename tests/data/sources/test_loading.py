import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.data.sources.cache import ABANDONED_SECONDS, UNFINISHED, cache_root
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.folders import folder_data
from fdgjax.data.sources.layouts import FolderLayout
from fdgjax.data.sources.loading import DATASETS, load_data
from fdgjax.data.sources.source import Source
from fdgjax.utils.errors import UserError
from tests.data.at_once import answers_at_once
from tests.data.trees import CLASSES, DOMAINS


def unfinished(cache: Path) -> list[Path]:
    return list(cache.glob(f"**/{UNFINISHED}*"))


def same(left: Domains, right: Domains) -> bool:
    arrays = zip(left[:3], right[:3], strict=True)
    return all(np.array_equal(a, b) for a, b in arrays) and left[3:] == right[3:]


@pytest.mark.slow
def test_loaded_arrays_are_read_only_typed_and_aligned(tree: Path, cache: Path) -> None:
    data = load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache))
    assert data.inputs.shape == (12, 8, 8, 3)
    assert isinstance(data.inputs, np.memmap)
    assert (data.inputs.dtype, data.labels.dtype, data.domains.dtype) == (np.uint8, np.int32, np.int32)
    assert not any(array.flags.writeable for array in data[:3])
    assert (data.domain_names, data.class_names) == (DOMAINS, CLASSES)
    # JPEG keeps a flat colour to within a few levels; the colours are at least 40 apart.
    colours = np.stack([100 * data.domains, 80 * data.labels], axis=-1)
    np.testing.assert_allclose(data.inputs[:, 4, 4, :2].astype(int), colours, atol=8)
    assert unfinished(cache) == []


@pytest.mark.parametrize(("bits", "dark"), [(8, True), (12, True), (16, False)])
def test_a_domain_without_upper_bits_is_said(
    bits: int, dark: bool, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    for place in ("plain/a", "plain/b", "scanned/a", "scanned/b"):
        (tmp_path / place).mkdir(parents=True)
        deep = rng.integers(0, 2**bits, (8, 8)).astype(np.uint16)
        Image.fromarray(deep if "scanned" in place else (deep >> (bits - 8)).astype(np.uint8)).save(
            tmp_path / place / "0.png"
        )
    with caplog.at_level(logging.INFO):
        load_data("folder", data_dir=str(tmp_path), image_size=8, cache_dir=str(cache))
    assert ("no pixel of scanned is brighter than" in caplog.text) is dark
    assert "no pixel of plain" not in caplog.text
    assert f"image files below {tmp_path}" in caplog.text


def test_a_file_with_the_time_of_another_is_another(tmp_path: Path, cache: Path) -> None:
    """As archives unpack: names, sizes and times of modification are those of files that were there before."""
    found = []
    for brightness in (10, 200):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        for place in ("one/a", "one/b", "two/a", "two/b"):
            (tmp_path / "data" / place).mkdir(parents=True)
            file = tmp_path / "data" / place / "0.bmp"
            Image.fromarray(np.full((8, 8), brightness, np.uint8)).save(file)
            os.utime(file, (0, 0))
        data = load_data("folder", data_dir=str(tmp_path / "data"), image_size=8, cache_dir=str(cache))
        found.append(int(data.inputs.max()))
    assert found == [10, 200]


@pytest.mark.parametrize(("of_a_shard", "most", "shards"), [(1, 12, 12), (1, 4, 4), (5, 9, 3), (6, 9, 2), (12, 9, 1)])
def test_shards_change_nothing(
    of_a_shard: int, most: int, shards: int, tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache))
    monkeypatch.setattr("fdgjax.data.sources.array_records.IMAGES_OF_A_SHARD", of_a_shard)
    monkeypatch.setattr("fdgjax.data.sources.array_records.MOST_SHARDS", most)
    other = cache.with_name("other")
    assert same(load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(other)), whole)
    assert len(list(other.glob("**/*.array_record-*"))) == shards


def test_more_images_than_tfds_keeps_in_memory_need_no_tensorflow(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorflow_datasets.core.shuffle.MAX_MEM_BUFFER_SIZE", 0)
    assert len(load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache)).labels) == 12


def test_second_load_reads_the_cache_and_says_nothing(
    tree: Path, cache: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="fdgjax")
    first = load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache))
    heard = [record for record in caplog.records if record.name == "fdgjax" or record.levelno >= logging.WARNING]
    said = [record.getMessage() for record in heard]
    assert len(said) == 1
    assert said[0].startswith("preparing folder at 8 px: 12 images")
    assert capfd.readouterr() == ("", "")
    caplog.clear()
    assert same(load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache)), first)
    assert not caplog.records


def test_nothing_is_left_outside_the_cache(tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, home = cache.with_name("temporary"), cache.with_name("home")
    for path, variable in ((temporary, "TMPDIR"), (home, "HOME")):
        path.mkdir()
        monkeypatch.setenv(variable, str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache))
    assert list(temporary.iterdir()) == list(home.iterdir()) == []


@pytest.mark.slow
def test_cached_data_needs_no_heavy_import(tree: Path, cache: Path) -> None:
    call = f"load_data('folder', data_dir={str(tree)!r}, image_size=8, cache_dir={str(cache)!r})"
    modules = "'tensorflow', 'tensorflow_datasets', 'grain', 'PIL', 'jax', 'sklearn', 'scipy'"
    script = (
        f"import sys; from fdgjax.data.sources.loading import load_data; {call};"
        f"print([name for name in ({modules},) if name in sys.modules])"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "'tensorflow_datasets'" in first
    assert "'tensorflow'" not in first
    assert second.strip() == "[]"


@pytest.mark.parametrize("change", ["touch", "rename", "add", "resize"])
def test_changed_folder_is_never_served_from_the_cache(tree: Path, cache: Path, change: str) -> None:
    load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    before = set(cache.iterdir())
    image = tree / DOMAINS[0] / CLASSES[0] / "0.png"
    match change:
        case "touch":
            os.utime(image, ns=(0, 1))
        case "rename":
            image.rename(image.with_name("9.png"))
        case "add":
            shutil.copy2(image, image.with_name("9.png"))
        case "resize":
            status = image.stat()
            image.write_bytes(image.read_bytes() + b"\0")
            os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns))
    data = load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    assert len(data.labels) == 12 + (change == "add")
    assert len(set(cache.iterdir()) - before) == 1


def test_moved_folder_keeps_its_cache_and_sizes_share_the_records(tree: Path, cache: Path) -> None:
    first = load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    moved = tree.rename(tree.with_name("elsewhere"))
    assert same(load_data("folder", data_dir=str(moved), image_size=4, cache_dir=str(cache)), first)
    (only,) = cache.iterdir()
    records = {path: path.stat().st_mtime_ns for path in (only / "records").rglob("*")}
    larger = load_data("folder", data_dir=str(moved), image_size=6, cache_dir=str(cache))
    assert larger.inputs.shape[1:3] == (6, 6)
    assert records == {path: path.stat().st_mtime_ns for path in (only / "records").rglob("*")}


def test_undecodable_image_is_named_and_leaves_nothing_behind(tree: Path, cache: Path) -> None:
    broken = tree / DOMAINS[1] / CLASSES[2] / "0.png"
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(UserError, match=r"cannot decode the image .*repair") as caught:
        load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache))
    assert str(broken) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_file_that_vanishes_meanwhile_is_named(tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found_then_removed(data_dir: str) -> Source:
        source = folder_data(FolderLayout())(data_dir)
        (tree / DOMAINS[0] / CLASSES[0] / "0.png").unlink()
        return source

    monkeypatch.setitem(DATASETS, "folder", found_then_removed)
    with pytest.raises(UserError, match=r"cannot read .*0\.png"):
        load_data("folder", data_dir=str(tree), image_size=8, cache_dir=str(cache))
    assert list(cache.iterdir()) == []


@pytest.mark.slow
def test_two_processes_at_once_agree(tree: Path, cache: Path) -> None:
    script = (
        "import sys, numpy; from fdgjax.data.sources.loading import load_data;"
        "import fdgjax.data.sources.array_records;"
        "print('ready', flush=True); sys.stdin.read(1);"
        f"d = load_data('folder', data_dir={str(tree)!r}, image_size=64, cache_dir={str(cache)!r});"
        "print(int(d.inputs.sum(dtype=numpy.int64)), d.inputs.shape)"
    )
    answers = answers_at_once(script, 2)
    assert answers[0] == answers[1]
    assert "(12, 64, 64, 3)" in answers[0][0]
    assert unfinished(cache) == []


def test_only_old_unfinished_folders_are_removed(tree: Path, cache: Path) -> None:
    load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    (only,) = cache.iterdir()
    abandoned, running = only / f"{UNFINISHED}a", only / f"{UNFINISHED}b"
    for path in (abandoned, running):
        path.mkdir()
    long_ago = time.time() - ABANDONED_SECONDS - 60
    os.utime(abandoned, (long_ago, long_ago))
    load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))
    assert unfinished(cache) == [running]


def test_cache_that_cannot_be_made_is_reported(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"set config\.data\.cache_dir"):
        load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(tmp_path / "file" / "cache"))


def test_default_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root("") == tmp_path / "xdg" / "fdgjax"
    for not_absolute in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", not_absolute)
        assert cache_root("") == tmp_path / "home" / ".cache" / "fdgjax"


@pytest.mark.parametrize("name", DATASETS)
def test_negative_size_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="image_size got -1"):
        load_data(name, image_size=-1)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'pacs'"):
        load_data("pasc")


def test_folders_need_a_size(tree: Path) -> None:
    with pytest.raises(UserError, match="image_size got 0"):
        load_data("folder", data_dir=str(tree))


def test_images_for_which_the_disk_has_no_space_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"images need 2,742,004 MiB and .* MiB free; .* lower config.data.im"):
        load_data("rotated_digits", image_size=40_000, cache_dir=str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
