"""`python -m fdgjax`, the same as the command `fdgjax`."""

import sys

from fdgjax.commands import run

if __name__ == "__main__":
    sys.exit(run())
