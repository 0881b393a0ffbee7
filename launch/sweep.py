"""The door of `fdgjax sweep` in a checkout, for the scripts of clusters: `python -m launch.sweep`."""

import sys

from fdgjax.commands import run

if __name__ == "__main__":
    sys.exit(run(["fdgjax", "sweep", *sys.argv[1:]]))
