"""What a run leaves behind: config, metrics, TensorBoard events, summary, checkpoints."""

from fdgjax.records.checkpoints import Checkpoints, History, open_checkpoints
from fdgjax.records.summary import TIMINGS, summarise
from fdgjax.records.workdir import Workdir, open_workdir

__all__ = ["TIMINGS", "Checkpoints", "History", "Workdir", "open_checkpoints", "open_workdir", "summarise"]
