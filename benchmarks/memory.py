"""The memory of real rounds: what was predicted, what they took at their peak, and whether it grows.

    python -m benchmarks.memory --config=configs/fedavg.py:pacs --config.data.dir=DATA --config.rounds=3
    python -m benchmarks.memory --config=configs/fedavg.py --config.rounds=300

What rounds take is data and state, whose sizes are known, and how far the process's resident memory rises above what it
had before the first round (Linux, glibc), evaluation included.
"""

import ctypes
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from fdgjax.config.command_line import parse
from fdgjax.engine.devices import split_cpu
from fdgjax.experiments import build
from fdgjax.run.compilation import compile_ahead
from fdgjax.run.compilation_cache import remember_compilations
from fdgjax.run.loop import train_rounds
from fdgjax.utils.command import command
from fdgjax.utils.process_memory import peak_resident_bytes, resident_bytes
from fdgjax.utils.processor import cores

MEBIBYTE = 2**20
SETTLED = 20
"""Rounds after which memory must not grow."""


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    config, _ = parse(["benchmarks.memory", *argv])
    remember_compilations(config)
    split_cpu(config.devices or cores())
    jax.block_until_ready(jax.numpy.zeros(1))
    experiment = build(config)
    state = experiment.init()
    experiment, predicted = compile_ahead(experiment, state)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the compiler has freed goes back to the system
    before = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    resident = []
    for progress in train_rounds(experiment, state):
        resident.append(resident_bytes())
        done = len(resident)
        if done % 50 == 0 or done == config.rounds:
            print(f"round {done}: {resident[-1] / MEBIBYTE:,.0f} MiB resident", flush=True)
        del progress
    taken = peak_resident_bytes() - before + predicted.data + predicted.state
    parts = ", ".join(f"{name} {size // MEBIBYTE:,}" for name, size in predicted._asdict().items())
    print(f"predicted {predicted.total / MEBIBYTE:,.0f} MiB ({parts})")
    print(f"taken {taken / MEBIBYTE:,.0f} MiB at the peak; predicted / taken {predicted.total / taken:.2f}")
    if len(resident) > SETTLED:
        print(f"last round / round {SETTLED}: {resident[-1] / resident[SETTLED - 1]:.4f} of resident memory")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
