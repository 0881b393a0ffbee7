"""The programs that a run's numbers depend on: the versions of the libraries, and this package's commit."""

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


def versions() -> dict[str, str]:
    """The versions of Python, the platform and the libraries."""
    return {"python": platform.python_version(), "platform": platform.platform(), **library_versions()}


def library_versions() -> dict[str, str]:
    """The versions of the libraries that decide about a run's numbers."""
    found = {}
    for name in ("fdgjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@functools.cache
def commit(package: Path = PACKAGE) -> str:
    """The commit of the checkout that holds the package, with git's own `-dirty` if files of the package differ from it
    or are new; '' for an installed package, and without git. It is asked for once, as Python loads code once."""
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        dirty = _git(package, "status", "--porcelain", "--", ".")
        return _git(package, "rev-parse", "--short=10", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(folder: Path, *words: str) -> str:
    """What git says of a folder; without its locks, so that nobody's own command there has to wait."""
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
