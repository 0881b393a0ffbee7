"""How the cost of a round grows with the number of clients, by client axis.

python -m benchmarks.scaling --clients 3 10 50 200 --axes map chunk vmap
python -m benchmarks.scaling --clients 3 50 200 --axes map --method hfedf
"""

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.jobs import Job, Result
from benchmarks.options import base_job, close, parser, planned, run
from benchmarks.tables import COSTS, costs, markdown, median, paired_ratio, series, spelled
from fdgjax.engine import CLIENT_AXES
from fdgjax.methods import METHODS
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.registry import lookup


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints."""
    options = parser(__doc__.splitlines()[0])
    add = options.add_argument
    add("--clients", nargs="+", type=positive_number, default=[3, 10, 50, 200], help="costs are relative to the first")
    add("--axes", nargs="+", default=["map", "chunk", "vmap"], help=", ".join(CLIENT_AXES))
    add("--steps", type=positive_number, default=5, help="minibatches per client and round")
    add("--chunk", type=positive_number, default=8, help="clients at a time for `chunk`")
    add("--devices", type=positive_number, default=1, help="devices that share the clients; on a CPU, of its cores")
    add("--method", default="fedavg", help=f"with its defaults: {', '.join(METHODS)}")
    add("--model", default="inception", help="entry of benchmarks.models.MODELS")
    chosen = options.parse_args(argv)
    measurements, path = run("scaling", chosen, contenders(base_job(chosen, chosen.model), chosen))
    close(measurements, table(measurements, chosen.clients[0]), path)
    return 0


def contenders(base: Job, chosen: Any) -> dict[str, Job]:
    """The jobs by name, `axis clients` or `axis/plan clients`.

    Raises:
      UserError: an unknown method, axis or plan.
    """
    lookup("method", base.method, METHODS)
    for axis in chosen.axes:
        lookup("client_axis", axis, CLIENT_AXES)
    by_axis = planned({axis: base._replace(client_axis=axis) for axis in chosen.axes}, chosen.plans)
    return {
        f"{axis} {clients}": job._replace(clients=clients)
        for axis, job in by_axis.items()
        for clients in chosen.clients
    }


def table(measurements: Sequence[Result], smallest: int) -> str:
    """One row per axis and number of clients. A client's cost relative to `smallest` clients is the ratio of the
    images per second, taken within each repeat."""
    header = ["axis", "clients", "images/s", f"cost per client vs {smallest}", *COSTS]
    rows = []
    for name in dict.fromkeys(m["contender"] for m in sorted(measurements, key=place)):
        axis, clients = name.split()
        speed = series(measurements, name, "images_per_second")
        cost = paired_ratio(series(measurements, f"{axis} {smallest}", "images_per_second"), speed)
        rows.append(
            [
                axis,
                clients,
                spelled(median(speed), "{:,.1f}".format),
                spelled(cost, "{:.2f}x".format),
                *costs(measurements, name),
            ]
        )
    return markdown(header, rows)


def place(m: Result) -> tuple[str, int]:
    """Where a measurement belongs in the table."""
    axis, clients = m["contender"].split()
    return axis, int(clients)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
