"""`python -m fdgjax.main --config=METHOD[:PRESET] ...`, the same as the command `fdgjax train`."""

import sys

from fdgjax.commands import run

if __name__ == "__main__":
    sys.exit(run(["fdgjax", "train", *sys.argv[1:]]))
