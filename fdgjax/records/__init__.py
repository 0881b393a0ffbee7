"""The files of a run: config, metrics, TensorBoard events, summary, checkpoints."""

from fdgjax.records.checkpoints import Checkpoints, History, open_checkpoints
from fdgjax.records.log import Log, open_log
from fdgjax.records.summary import TIMINGS, mean_figures, summarise, summarise_seeds
from fdgjax.records.workdir import Workdir, open_seeds, open_workdir

__all__ = [
    "TIMINGS",
    "Checkpoints",
    "History",
    "Log",
    "Workdir",
    "mean_figures",
    "open_checkpoints",
    "open_log",
    "open_seeds",
    "open_workdir",
    "summarise",
    "summarise_seeds",
]
