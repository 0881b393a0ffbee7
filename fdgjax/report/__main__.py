"""`python -m fdgjax.report`."""

import sys

from fdgjax.report.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
