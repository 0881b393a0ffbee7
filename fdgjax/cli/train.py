"""Trains and evaluates one experiment.

    fdgjax train --config=METHOD[:PRESET] --workdir=DIR --config.KEY=VALUE ...
    fdgjax train --config=METHOD[:PRESET] --help        # all keys; with --help=method those of one group

With `--distributed=auto` or `--distributed=HOST:PORT,RANK,COUNT`, this is one of several processes that train one run
together. `python -m fdgjax.main` does the same.
"""

import gc
import logging
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from fdgjax.config import Config
from fdgjax.config.command_line import parse
from fdgjax.config.help import asks_for_help, usage
from fdgjax.distributed import ProcessAddress, Stop, is_coordinator, join_processes, process_group, split_off
from fdgjax.inference.safeguards import keep_safeguards
from fdgjax.run.compilation_cache import remember_compilations
from fdgjax.run.console import Console, silent_console
from fdgjax.run.device_choice import as_begun, prepare_cpu
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.command import command
from fdgjax.utils.signals import save_on_signals


@command
def main(argv: Sequence[str]) -> int:
    """Runs the command.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input, 128 + signal number when stopped by one.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("fdgjax").setLevel(logging.INFO)
    collect_rarely()
    console = Console()
    stop = threading.Event()
    if asked := [word for word in argv if asks_for_help(word)]:
        console.say(usage([word for word in argv if word not in asked], asked[0].partition("=")[2]))
        return 0
    with save_on_signals(stop, console.say) as received:
        try:
            words, place = split_off(argv)
            config, workdir = parse(words)
            remember_compilations(config)
            if place is None:
                prepare_cpu(as_begun(config, workdir), workdir)
                train(config, workdir, console, stop)
            else:
                train_together(config, workdir, stop, place)
        except Interrupted as news:
            console.say(str(news))
            return 128 + (received or [signal.SIGTERM])[0]
    return 0


def train_together(config: Config, workdir: Path, stop: Stop, place: ProcessAddress) -> None:
    """Trains with several processes, of which only process 0 writes records and prints. Raises like `run_config`."""
    join_processes(place)
    prepare_cpu(as_begun(config, workdir), workdir, place.size or 1)
    stopped: Interrupted | None = None
    with process_group():
        try:
            train(config, workdir, Console() if is_coordinator() else silent_console(), stop)
        except Interrupted as news:  # raised in all processes
            stopped = news
    if stopped is not None:
        raise stopped


def train(config: Config, workdir: Path, console: Console, stop: Stop) -> None:
    """Trains the run, prints its result, and keeps what tells when not to trust its predictions."""
    console.result(run_config(config, workdir, console, stop, keep_safeguards))
    console.say(f"records in {workdir}")


def collect_rarely() -> None:
    """Makes garbage collection rarer: tracing creates millions of objects, and nearly all of them stay alive."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
