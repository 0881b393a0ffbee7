"""The rooms of the package stand on floors: no import runs upwards or in a circle, and a low room loads nothing
above."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import fdgjax

PACKAGE = Path(fdgjax.__file__).parent
HALL: Mapping[str, str] = {
    "utils": "what any room may need",
    "data": "images to clients: sources, downloads, augmentations, splits, protocols",
    "nn": "layers that are fast under a client axis",
    "loggers": "trackers that a run's numbers go to besides its own files",
    "distributed": "several processes as one program",
    "contract": "what a method is: to be read first",
    "aggregation": "rules that combine updates",
    "models": "networks, heads, published weights",
    "objectives": "losses and regularisers",
    "engine": "the compiled round, with its attacks, defences and privacy",
    "evaluation": "what is measured, and how a round is selected",
    "methods": "a file for each paper",
    "config": "keys, presets and the command line's words",
    "experiments": "a config put together: data, model, method, evaluation",
    "run": "one run's life, and the records it leaves",
    "inference": "a trained run that predicts, and its export",
    "sweeps": "many runs: cells, workers, search, comparison with papers",
    "deploy": "a federation of real parties, by Flower",
    "report": "pages, tables and figures of runs",
    "api": "what `import fdgjax` gives",
    "__init__": "the package's public names",
    "cli": "the command `fdgjax`, a file for each subcommand",
    "main": "`python -m fdgjax.main`, the documented entry",
    "__main__": "`python -m fdgjax`",
}
"""The names at the top of the package, each with what it is for: another one is a decision, made here with its
reason."""
MOST_ROOMS = 30
"""Folders with modules, the package's own included: more than these are not held in the head."""
FLOORS = (
    {"utils"},
    {"data", "distributed", "loggers", "nn"},
    {"contract"},
    {"aggregation", "models", "objectives"},
    {"engine"},
    {"evaluation", "methods"},
    {"config"},
    {"experiments"},
    {"run"},
    {"inference", "sweeps"},
    {"deploy"},
    {"api", "report"},
    {"__init__"},
    {"cli"},
    {"__main__", "main"},
)
"""Rooms from the ground up: each imports from floors below its own, and from itself."""


def modules() -> Mapping[str, Path]:
    """The package's modules by name."""
    paths = {".".join(("fdgjax", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in files()}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    """The name at the top that a module is in; `import fdgjax` itself is of `__init__`."""
    return module.split(".")[1] if "." in module else "__init__"


def imports(text: str, known: Mapping[str, Path]) -> Iterator[str]:
    """The package's modules that a source imports, inside functions too, in whatever form."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "fdgjax")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports of the package are absolute"
            module = node.module or ""
            if module.split(".")[0] == "fdgjax":
                yield from (name if (name := f"{module}.{alias.name}") in known else module for alias in node.names)


def test_every_form_of_import_is_seen() -> None:
    known = {"fdgjax": PACKAGE, "fdgjax.run": PACKAGE, "fdgjax.run.loop": PACKAGE}
    text = """
import fdgjax
import fdgjax.run as r
from fdgjax import run, experiment
def late():
    from fdgjax.run import loop, other
"""
    found = list(imports(text, known))
    assert found == ["fdgjax", "fdgjax.run", "fdgjax.run", "fdgjax", "fdgjax.run.loop", "fdgjax.run"]


def test_the_hall_has_the_names_that_are_listed() -> None:
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names == set(HALL)
    assert set(HALL) == set().union(*FLOORS)


def test_rooms_are_few() -> None:
    rooms = {path.parent for path in files()}
    assert len(rooms) <= MOST_ROOMS, sorted(str(room.relative_to(PACKAGE)) for room in rooms)
    assert not [room for room in rooms if not (room / "__init__.py").exists()]


@pytest.mark.slow
def test_no_import_runs_upwards() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    known = modules()
    upwards = [
        f"{module} imports {there}"
        for module, path in known.items()
        for there in imports(path.read_text(), known)
        if room_of(module) != room_of(there) and floor[room_of(there)] >= floor[room_of(module)]
        # The package's public names are loaded when they are asked for.
        if module != "fdgjax"
    ]
    assert not upwards


@pytest.mark.slow
def test_no_modules_import_in_a_circle() -> None:
    known = modules()
    graph = {module: set(imports(path.read_text(), known)) - {module} for module, path in known.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_parts_know_no_method_file() -> None:
    methods = {file.stem for file in (PACKAGE / "methods").glob("*.py")} - {"__init__"}
    known = modules()
    for file in (PACKAGE / "methods" / "parts").glob("*.py"):
        named = set(imports(file.read_text(), known))
        assert not named & {f"fdgjax.methods.{method}" for method in methods}, file.name


@pytest.mark.slow
def test_a_run_loads_what_it_needs_when_it_needs_it() -> None:
    late = ("flax.nnx", "orbax.checkpoint", "tensorflow", "tensorflow_datasets", "matplotlib", "optuna", "flwr")
    code = f"import sys, fdgjax.cli.train; print([name for name in {late!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_contract_loads_no_data_sets() -> None:
    code = "import sys, fdgjax.contract; print('\\n'.join(name for name in sys.modules if name.startswith('fdgjax.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {room_of(name) for name in done.stdout.split()} <= {"contract", "data", "utils"}
    assert "fdgjax.data.sources.loading" not in done.stdout.split()
