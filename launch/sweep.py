"""The door of `fdgjax sweep` in a checkout, for the scripts of clusters: `python -m launch.sweep`."""

import sys

from fdgjax.sweeps.sweep import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
