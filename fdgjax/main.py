"""`python -m fdgjax.main --config=METHOD[:PRESET] ...`, the same as the command `fdgjax train`."""

import sys

from fdgjax.cli.subcommands import run_command_line

if __name__ == "__main__":
    sys.exit(run_command_line(["fdgjax", "train", *sys.argv[1:]]))
