"""Completion in bash: subcommands, methods, presets, networks and keys of a config.

    eval "$(fdgjax completion)"    # in ~/.bashrc

Libraries for completion read argparse, which knows nothing of a config's keys. The words are therefore written into the
script, and no Python starts when TAB is pressed.
"""

from collections.abc import Sequence
from string import Template

from fdgjax.cli.subcommands import COMMANDS
from fdgjax.config import make_config
from fdgjax.config.command_line import leaves
from fdgjax.config.presets import PRESETS
from fdgjax.methods import METHODS
from fdgjax.models import MODELS
from fdgjax.utils.command import command, parser_of

SCRIPT = """\
_fdgjax() {
    local line=${COMP_LINE:0:COMP_POINT}
    local word=${line##*[[:space:]]}
    COMPREPLY=()
    if [[ $line != *[[:space:]]*[[:space:]]* ]]; then
        COMPREPLY=($(compgen -W "@commands" -- "$word"))
        return
    fi
    # bash replaces only what follows the last = or : of a word.
    case $word in
        --config=*:*) COMPREPLY=($(compgen -W "@presets" -- "${word##*:}")) ;;
        --config=*) COMPREPLY=($(compgen -W "@methods" -- "${word#--config=}")) ;;
        --config*=*) ;;
        --c*)
            compopt -o nospace 2> /dev/null
            COMPREPLY=($(compgen -S = -W "@keys" -- "$word"))
            ;;
        *)
            case $line in
                *"fdgjax methods "* | *"fdgjax presets "*" "*) COMPREPLY=($(compgen -W "@methods" -- "$word")) ;;
                *"fdgjax presets "*) COMPREPLY=($(compgen -W "@presets" -- "$word")) ;;
                *"fdgjax models "*) COMPREPLY=($(compgen -W "@models" -- "$word")) ;;
            esac
            ;;
    esac
}
complete -o default -F _fdgjax fdgjax
"""


class Words(Template):
    """A template whose places are `@name`, as `$` is the shell's."""

    delimiter = "@"


@command
def main(argv: Sequence[str]) -> int:
    """Prints the script; returns the exit status."""
    parser_of("completion", __doc__).parse_args(argv[1:])
    keys = dict.fromkeys(key for name in METHODS for key in leaves(make_config(name)))
    words = {"commands": COMMANDS, "methods": METHODS, "presets": PRESETS, "models": MODELS}
    written = {name: " ".join(found) for name, found in words.items()}
    print(Words(SCRIPT).substitute(written, keys=" ".join(["--config", *(f"--config.{key}" for key in keys)])), end="")
    return 0
