"""The door of `fdgjax reproduce` in a checkout, for the scripts of clusters: `python -m launch.reproduce`."""

import sys

from fdgjax.commands import run

if __name__ == "__main__":
    sys.exit(run(["fdgjax", "reproduce", *sys.argv[1:]]))
