"""Trains hFedF on rotated digits and prints its accuracy by domain.

    fdgjax demo [--workdir=DIR] [--config.KEY=VALUE ...]

It is `fdgjax train --config=hfedf`: the digits come with scikit-learn, so that nothing is fetched, and a run's folder
is made in `runs`.
"""

from collections.abc import Sequence

from fdgjax.cli import train
from fdgjax.config.help import asks_for_help
from fdgjax.utils.command import command

CONFIG = "--config=hfedf:rotated_digits"
NEXT = "next: fdgjax methods, fdgjax presets, and fdgjax train --config=METHOD:PRESET --help"


@command
def main(argv: Sequence[str]) -> int:
    """Trains; returns the exit status of `fdgjax train`."""
    if any(map(asks_for_help, argv)):
        print(str(__doc__).strip())
        return 0
    status = train.main([argv[0], CONFIG, *argv[1:]])
    if not status:
        print(NEXT)
    return status
