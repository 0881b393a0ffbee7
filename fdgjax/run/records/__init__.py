"""The files of a run: config, metrics, summary, checkpoints."""

from fdgjax.run.records.checkpoints import Checkpoint, Checkpoints, History, newest_checkpoint, open_checkpoints
from fdgjax.run.records.log import open_log
from fdgjax.run.records.summary import TIMINGS, by_seed, mean_figures, summarise, summarise_seeds
from fdgjax.run.records.versions import library_versions
from fdgjax.run.records.workdir import (
    Workdir,
    begun_with,
    check_data,
    check_place,
    check_workdir,
    description_of,
    finished,
    lock_workdir,
    note_programs,
    open_seeds,
    open_workdir,
    own_workdir,
    read_config_file,
    read_description,
    read_records,
    read_summary,
    write_description,
    write_summary,
)

__all__ = [
    "TIMINGS",
    "Checkpoint",
    "Checkpoints",
    "History",
    "Workdir",
    "begun_with",
    "by_seed",
    "check_data",
    "check_place",
    "check_workdir",
    "description_of",
    "finished",
    "library_versions",
    "lock_workdir",
    "mean_figures",
    "newest_checkpoint",
    "note_programs",
    "open_checkpoints",
    "open_log",
    "open_seeds",
    "open_workdir",
    "own_workdir",
    "read_config_file",
    "read_description",
    "read_records",
    "read_summary",
    "summarise",
    "summarise_seeds",
    "write_description",
    "write_summary",
]
