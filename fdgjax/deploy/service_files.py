"""What starts the programs of a deployment and keeps them running: units for systemd, and a Compose file.

Both run Flower's programs as a user without rights, read samples only, and write below one folder.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

PINNED = ("fdgjax", "flwr", "jax", "jaxlib", "flax", "optax", "numpy")
"""The packages on which numbers and messages depend; all parties install the same versions."""
PROGRAMS, KEYS, STATES = "/opt/fdgjax", "/etc/fdgjax", "/var/lib/fdgjax"
NODE_PORT = 9094
"""Where a node's own processes reach it, on its machine only."""
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Without these, Flower's programs connect to its makers: what they tell is no part of the federation."""


class Service(NamedTuple):
    """What the files depend on.

    name: the method's. host, port: where nodes reach the SuperLink. clients: their number. authentication: whether
    nodes show a key. samples: a node's word for its samples, see `fdgjax.deploy.node_settings`. workdir: the server's
    folder, absolute. own: the server's own samples, absolute; '' for none.
    """

    name: str
    host: str
    port: int
    clients: int
    authentication: bool
    samples: str
    workdir: str
    own: str


def requirements(needed: Sequence[str]) -> str:
    """The versions installed here, for `pip install -r`; needed: fdgjax's extras besides `flower`."""
    extras = {"fdgjax": f"[{','.join(('flower', *needed))}]"}
    return "".join(f"{name}{extras.get(name, '')}{pin(name)}\n" for name in PINNED)


def pin(name: str) -> str:
    """`==VERSION` of an installed package, '' for one that is not."""
    try:
        return f"=={version(name)}"
    except PackageNotFoundError:
        return ""


def node_command(service: Service, client: str, keys: str, states: str) -> list[str]:
    """The words that start a SuperNode with one process for all messages."""
    key = ["--auth-supernode-private-key", f"{keys}/client.key"] if service.authentication else []
    return [
        *("fdgjax", "flower", "--node", "--superlink", f"{service.host}:{service.port}"),
        *("--root-certificates", f"{keys}/ca.crt", *key, "--port", str(NODE_PORT)),
        *("--node-config", f"client={client} {service.samples} states='{states}'"),
    ]


def superlink_command(service: Service, keys: str) -> list[str]:
    """The words that start a SuperLink."""
    return [
        *("flower-superlink", "--host", "0.0.0.0", "--port", str(service.port)),
        *("--ssl-ca-certfile", f"{keys}/ca.crt", "--ssl-certfile", f"{keys}/server.pem"),
        *("--ssl-keyfile", f"{keys}/server.key"),
        *(["--enable-supernode-auth"] if service.authentication else []),
        "--disable-runtime-dependency-installation",
    ]


def node_unit(service: Service) -> str:
    """`fdgjax-node.service`."""
    return f"""# A hospital's node. To be corrected: CLIENT, the hospital's number, from 0 to {service.clients - 1}.
{unit_head(f"fdgjax: this hospital's node ({service.name})")}
Environment=CLIENT=0
{command_line(node_command(service, "${CLIENT}", KEYS, f"{STATES}/states"))}
{HARDENING}
ProtectHome=yes
ReadOnlyPaths=/data {KEYS}
ReadWritePaths={STATES}

[Install]
WantedBy=multi-user.target
"""


def superlink_unit(service: Service) -> str:
    """`fdgjax-superlink.service`."""
    read = " ".join(systemd_word(path) for path in (KEYS, service.own) if path)
    return f"""# The server: Flower's SuperLink, which starts the server's part of a run.
{unit_head(f"fdgjax: the server ({service.name})")}
{command_line(superlink_command(service, KEYS))}
{HARDENING}
ProtectHome=read-only
ReadOnlyPaths={read}
ReadWritePaths={STATES} {systemd_word(service.workdir)}

[Install]
WantedBy=multi-user.target
"""


HARDENING = """Restart=always
RestartSec=20
NoNewPrivileges=yes
CapabilityBoundingSet=
PrivateTmp=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RestrictSUIDSGID=yes"""
"""Of both units. Devices stay visible, and memory may be executed: accelerators and compiled programs need them."""


def unit_head(description: str) -> str:
    """The beginning of a unit."""
    own = {"PATH": f"{PROGRAMS}/bin:/usr/bin:/bin", **folders(STATES), **QUIET}
    return f"""[Unit]
Description={description.replace("%", "%%")}
Wants=network-online.target
After=network-online.target

[Service]
User=fdgjax
StateDirectory=fdgjax
WorkingDirectory={STATES}
Environment={" ".join(f"{name}={value}" for name, value in own.items())}"""


def folders(states: str) -> dict[str, str]:
    """The variables for what is written besides a node's states: Flower's copy of the app, and fetched weights."""
    return {"FLWR_HOME": f"{states}/flwr", "XDG_CACHE_HOME": f"{states}/cache"}


def command_line(words: Sequence[str]) -> str:
    """`ExecStart=` with a line for each flag."""
    program, *rest = words
    lines = [systemd_word(f"{PROGRAMS}/bin/{program}")]
    for word in rest:
        if word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += f" {systemd_word(word)}"
    return "ExecStart=" + " \\\n    ".join(lines)


def systemd_word(word: str) -> str:
    """A word of a unit; `${CLIENT}` alone remains a variable."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return plain if plain.replace("/", "").replace(".", "").replace(":", "").isalnum() else f'"{plain}"'


def compose(service: Service) -> str:
    """`compose.yaml`, with a profile for each side. Its values are JSON, which is YAML."""
    literal = service.workdir.replace("$", "$$"), service.own.replace("$", "$$")
    data = "${DATA:-/data}:/data:ro"
    keys = "${KEYS:-" + KEYS + "}:/keys:ro"
    states = "${STATES:-" + STATES + "}:/states"
    own = [f"{literal[1]}:{literal[1]}:ro"] if service.own else []
    node = {
        "command": node_command(service, "${CLIENT:-0}", "/keys", "/states/states"),
        "volumes": [data, keys, states],
    }
    superlink = {
        "command": superlink_command(service, "/keys"),
        "ports": [f"{service.port}:{service.port}"],
        "volumes": [keys, states, f"{literal[0]}:{literal[0]}", *own],
    }
    return f"""# docker compose --profile node up --detach        at a hospital
# docker compose --profile superlink up --detach   at the server
# CLIENT: the hospital's number, from 0 to {service.clients - 1}. DATA, KEYS, STATES: folders of this machine.
# RUN_AS: the user and group that may read DATA and KEYS and write STATES.
# fdgjax's wheel, if no index has this version, lies beside this file.
x-common: &common
  image: "fdgjax-federation:{version("fdgjax").replace("+", "-")}"
  build:
    context: .
    dockerfile_inline: |
      FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim
      COPY requirements.txt fdgjax-*.whl* /operations/
      RUN pip install --no-cache-dir --find-links /operations -r /operations/requirements.txt
  user: "${{RUN_AS:-1000:1000}}"
  restart: always
  read_only: true
  tmpfs: ["/tmp"]
  cap_drop: ["ALL"]
  security_opt: ["no-new-privileges:true"]
  environment: {json.dumps({"HOME": "/states", "USER": "fdgjax", **folders("/states"), **QUIET})}
services:
  node:
    <<: *common
    profiles: ["node"]
{yaml_lines(node)}
  superlink:
    <<: *common
    profiles: ["superlink"]
{yaml_lines(superlink)}
"""


def yaml_lines(entries: Mapping[str, Sequence[Any]]) -> str:
    """Lists of a service, an item on each line."""
    return "\n".join(
        f"    {name}:\n" + "\n".join(f"      - {json.dumps(one)}" for one in each) for name, each in entries.items()
    )
