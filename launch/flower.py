"""The door of `fdgjax flower` in a checkout: `python -m launch.flower --config=configs/METHOD.py --check`."""

import sys

from fdgjax.commands import run

if __name__ == "__main__":
    sys.exit(run(["fdgjax", "flower", *sys.argv[1:]]))
