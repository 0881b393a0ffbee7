"""`python -m fdgjax`, the same as the command `fdgjax`."""

import sys

from fdgjax.cli.subcommands import run_command_line

if __name__ == "__main__":
    sys.exit(run_command_line())
