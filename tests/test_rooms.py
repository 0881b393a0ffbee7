"""The rooms of the package stand on floors: no import runs upwards, and importing a low room loads nothing above it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fdgjax

PACKAGE = Path(fdgjax.__file__).parent
FLOORS = (
    {"errors", "huge_pages", "process_memory", "randomness", "signals", "threads", "views"},
    {"door", "files"},
    {"accounting", "distributed", "registry", "sealed", "variables"},
    {"data", "nn", "utils", "writers"},
    {"contract"},
    {"aggregation", "models", "objectives"},
    {"engine"},
    {"evaluation", "methods"},
    {"config"},
    {"building", "records"},
    {"run"},
    {"predicting"},
    {"apart", "api", "catalogue", "deploy", "domain_shift", "fetching", "predict", "probe", "sweeps", "train"},
    {"report"},
    {"export"},
    {"commands"},
    {"__main__", "main"},
)
"""Rooms from the ground up: each imports from floors below its own, and from itself."""


def room_of(module: str) -> str:
    return module.split(".")[1]


def imports(file: Path) -> Iterator[str]:
    """The rooms that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "fdgjax":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fdgjax."):
            yield room_of(node.module)
        elif isinstance(node, ast.Import):
            yield from (room_of(alias.name) for alias in node.names if alias.name.startswith("fdgjax."))


def test_every_room_has_its_floor() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "__pycache__"} == set().union(*FLOORS)


def test_no_import_runs_upwards() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    upwards = [
        f"{file.relative_to(PACKAGE)} imports {there}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for here in [file.relative_to(PACKAGE).parts[0].removesuffix(".py")]
        for there in imports(file)
        if here != there and here != "__init__" and floor[there] >= floor[here]
    ]
    assert not upwards


def test_parts_know_no_method_file() -> None:
    files = {file.stem for file in (PACKAGE / "methods").glob("*.py")} - {"__init__"}
    for file in (PACKAGE / "methods" / "parts").glob("*.py"):
        named = {node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)}
        assert not named & {f"fdgjax.methods.{method}" for method in files}, file.name


def test_a_run_loads_what_it_needs_when_it_needs_it() -> None:
    late = ("flax.nnx", "orbax.checkpoint", "tensorflow", "tensorflow_datasets", "matplotlib", "optuna", "flwr")
    code = f"import sys, fdgjax.train; print([name for name in {late!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_contract_loads_no_data_sets() -> None:
    code = "import sys, fdgjax.contract; print('\\n'.join(name for name in sys.modules if name.startswith('fdgjax.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {room_of(name) for name in done.stdout.split()} <= {"contract", "data", "errors", "variables"}
    assert "fdgjax.data.loading" not in done.stdout.split()
