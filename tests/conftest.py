"""What every test shares: strict dtype and rank promotion, and the folders of real data and conformance numbers."""

import gc
import itertools
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
import jaxlib
import pytest
from hypothesis import settings

MANY_MAPS, TESTS_BETWEEN_COUNTS = 40_000, 20
TESTS = itertools.count(1)
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""XLA:CPU then compiles a round of a tiny model in less than half of the time; `XLA_FLAGS= pytest` tests with its
defaults."""
UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
"""Tiny programs take longer to optimise than to run; `JAX_DISABLE_MOST_OPTIMIZATIONS=false pytest` optimises them."""
WITHOUT_QUICK = (0, 11)
"""The first jaxlib that is not known to know these flags: an unknown one ends the process."""
GARBAGE = (50_000, 20, 100)
"""Allocations between collections, by generation: tracing makes millions of objects, of which nearly all stay."""
COMPILED = "FDGJAX_TEST_CACHE"
"""The environment variable with the folder of compiled programs; empty for none."""
SHARED = Path(__file__).resolve().parents[1] / ".." / "shared"


BEGUN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "slow tests that have not begun after so many minutes are skipped, so that CI ends on a slow machine, too"
    parser.addoption("--minutes", type=float, default=math.inf, help=words)


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("minutes")
    if item.get_closest_marker("slow") and time.monotonic() - item.config.stash[BEGUN] > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over: run `make slow` without SLOW_MINUTES for all of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where time is short, files with many tests come last: these are cases of the same laws, of which some run in
    `make test`; files with few are tests of whole programs. Needs `--no-loadscope-reorder`, as pytest-xdist does the
    opposite."""
    if math.isfinite(config.getoption("minutes")):
        tests = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: tests[item.path])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGUN] = time.monotonic()
    # Threads that wait for each other by spinning take the other worker's core.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    # XLA reads its flags when the first program is compiled; the processes that tests start inherit them.
    if jaxlib.version.__version_info__ < WITHOUT_QUICK:
        os.environ.setdefault("XLA_FLAGS", QUICK)
    os.environ.setdefault(UNOPTIMISED, "true")
    jax.config.update(UNOPTIMISED.lower(), os.environ[UNOPTIMISED] != "false")
    # The same small programs are compiled by many tests; tracing still happens every time.
    if folder := os.environ.get(COMPILED, str(_user_cache() / "fdgjax" / "tests-compiled")):
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # Every process has several devices; a program that asks for one runs on the first, as ever.
    jax.config.update("jax_num_cpu_devices", 4)
    jax.devices()  # from here on, as no program that a test runs may make others of them
    settings.register_profile("patient", settings(), deadline=None)  # a busy machine fails no test
    settings.load_profile("patient")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def _user_cache() -> Path:
    """Outside the checkout, so that a fresh one profits."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def pytest_runtest_teardown() -> None:
    """Linux gives a process 65,530 memory maps, and every compiled program takes some: beyond them XLA crashes.

    A command sets the package's level of logging; the next test begins without one.
    """
    logging.getLogger("fdgjax").setLevel(logging.NOTSET)
    maps = Path("/proc/self/maps")
    if next(TESTS) % TESTS_BETWEEN_COUNTS == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()


def _folder(name: str) -> Path:
    path = (SHARED / name).resolve()
    if not path.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{path} is missing: CI runs every test, none may be skipped for want of data")
        pytest.skip(f"{path} is absent: this test reads real data or conformance numbers kept outside the project")
    return path


@pytest.fixture(autouse=True)
def _registered_until_the_end() -> Iterator[None]:
    """What a test registers, or has a run register for it, is gone when it ends: no test sees another's entries."""
    from fdgjax.config.register import REGISTRIES  # after `pytest_configure`, which says how programs are compiled

    before = {key: set(entries) for key, entries in REGISTRIES.items()}
    yield
    for key, entries in REGISTRIES.items():
        for name in set(entries) - before[key]:
            del entries[name]
            entries.origins.pop(name, None)


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
