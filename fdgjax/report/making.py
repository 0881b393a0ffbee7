"""A report's files, made of its runs: the page, the tables as Markdown, CSV and LaTeX, and the figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fdgjax.report.figure_files import figure_files
from fdgjax.report.formats import as_csv, as_latex, as_markdown
from fdgjax.report.gallery import FIGURES, make_tables, without_empty_columns
from fdgjax.report.page import make_page
from fdgjax.report.reading import Run
from fdgjax.report.tables import Table
from fdgjax.report.trained_states import trained_state
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.files import stays_inside, write_bytes, write_text

PAGE = "report.html"
LISTED = ".report"
"""The file that lists the files of a report, a line each."""


def with_trained_state(run: Run, data_dir: str, say: Callable[[str], None]) -> Run:
    """The run with the trained state of its first folder that has one, or the reason why there is none.

    Args:
      run: one experiment.
      data_dir: folder of the data, if it has moved since the run.
      say: told which folder is opened.
    """
    import jax

    for folder in run.folders:
        say(f"opening {printable(folder.path)}")
        try:
            found = trained_state(folder.path, data_dir)
        except UserError as error:
            run = run._replace(missed=str(error))
        else:
            return run._replace(trained_state=found, facts={**found.facts, **run.facts}, missed="")
        finally:
            # The next run compiles other programs.
            jax.clear_caches()
    return run


def report(
    runs: Sequence[Run],
    command: str,
    reach: Sequence[float] = (),
    states: bool = True,
    formats: Sequence[str] = (),
    choices: Sequence[Table] = (),
) -> Mapping[str, str | bytes]:
    """The files of a report, by name.

    Args:
      runs: those reported.
      command: reproduces the report.
      reach: accuracies in (0, 1] to which communication is counted; derived from the runs where there are none.
      states: whether checkpoints were opened.
      formats: of the files of each figure.
      choices: tables of the choices among these runs.
    """
    tables = [*map(without_empty_columns, choices), *make_tables(runs, reach)]
    notes = [f"No trained state of {run.name}: {run.missed}." for run in runs if run.missed]
    if not states:
        notes = ["Trained states were not opened (--no-states)."]
    figures = {name: figure for name, entry in FIGURES.items() if (figure := entry.draw(runs))}
    page = make_page(runs, tables, figures, command, notes)
    return {
        PAGE: page,
        "report.md": "\n".join(as_markdown(table) for table in tables),
        **{f"{table.name}.csv": as_csv(table) for table in tables},
        **{f"{table.name}.tex": as_latex(table) for table in tables},
        **figure_files(figures, formats),
    }


def write(out: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes the files to their folder, in which those of an earlier report are replaced or removed.

    Raises:
      UserError: the folder holds no report but other files, such as data, which would be read together with the
        report's, or a file of the same name that no report wrote; or it is itself a file.
    """
    if out.is_dir() and not (out / LISTED).is_file() and (other := next(out.iterdir(), None)):
        raise UserError(
            f"--out got '{out}', which has {printable(other.name)} and no report; expected a new or empty folder, or "
            "an earlier report's"
        )
    earlier = (out / LISTED).read_text().splitlines() if (out / LISTED).is_file() else []
    if taken := [name for name in files if name not in earlier and (out / name).exists()]:
        raise UserError(
            f"--out got '{out}', which has a {taken[0]} of its own; expected a folder without; choose another"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"--out got '{out}', which is a file; expected a folder") from None
    for name in {*earlier} - {*files}:
        if stays_inside(Path(name)):
            (out / name).unlink(missing_ok=True)
    write_text(out / LISTED, "".join(f"{name}\n" for name in files))
    for name, content in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        write_bytes(out / name, content if isinstance(content, bytes) else content.encode())
