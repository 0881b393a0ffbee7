"""The door of `fdgjax reproduce` in a checkout, for the scripts of clusters: `python -m launch.reproduce`."""

import sys

from fdgjax.sweeps.reproduce import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
