"""What every test shares: strict dtype and rank promotion, and the folders of real data and conformance numbers."""

import os
from pathlib import Path

import jax
import pytest

MANY_MAPS = 40_000
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""XLA:CPU then compiles a round of a tiny model in a third of the time; `XLA_FLAGS= pytest` tests with its defaults."""
SHARED = Path(__file__).resolve().parents[1] / ".." / "shared"


def pytest_configure(config: pytest.Config) -> None:
    # XLA reads its flags when the first program is compiled; the processes that tests start inherit them.
    os.environ.setdefault("XLA_FLAGS", QUICK)
    # The same small programs are compiled by many tests; tracing still happens every time.
    if config.pluginmanager.hasplugin("cacheprovider"):
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("compiled")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    # Every process has several devices; a program that asks for one runs on the first, as ever.
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_runtest_teardown() -> None:
    """Linux gives a process 65,530 memory maps, and every compiled program takes some: beyond them XLA crashes."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()


def _folder(name: str) -> Path:
    path = (SHARED / name).resolve()
    if not path.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is missing: CI runs every test, none may be skipped for want of data")
        pytest.skip(f"{path} is absent: this test reads real data or conformance numbers kept outside the project")
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real PACS and MNIST."""
    return _folder("data")


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder with numbers produced by the methods' official code."""
    return _folder("conformance")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
