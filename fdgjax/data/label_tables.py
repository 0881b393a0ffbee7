"""Text tables of each client's labels, shown before training."""

from collections.abc import Sequence

import numpy as np


def label_histogram(
    labels: np.ndarray,
    client_rows: Sequence[np.ndarray],
    class_names: Sequence[str],
    *,
    domains: np.ndarray | None = None,
    domain_names: Sequence[str] = (),
    server_rows: np.ndarray | None = None,
    client_names: Sequence[str] = (),
) -> str:
    """A text table of each client's samples by class.

    Args:
      labels: int `[samples]`, of the whole data set.
      client_rows: each client's rows of it.
      class_names: the names of the labels.
      domains: int `[samples]`; if given, a last column names the domains each client holds.
      domain_names: the names of the domains.
      server_rows: the rows of a server that holds data.
      client_names: those of the clients; () for their numbers.

    Returns:
      One line for the header, one for the server if it has any data, and one for each client; columns aligned, no
      newline at the end.
    """
    holders = list(zip(named(client_names, client_rows), client_rows, strict=True))
    if server_rows is not None and len(server_rows):
        holders.insert(0, ("server", server_rows))
    table = [["client", *class_names, "all"] + (["domains"] if domains is not None else [])]
    for holder, rows in holders:
        counts = np.bincount(labels[rows], minlength=len(class_names))
        line = [holder, *map(str, counts), str(len(rows))]
        if domains is not None:
            line.append(names_of(domains, domain_names, rows))
        table.append(line)
    return aligned(table, len(class_names) + 2)


def label_means(
    labels: np.ndarray,
    client_rows: Sequence[np.ndarray],
    class_names: Sequence[str],
    *,
    domains: np.ndarray,
    domain_names: Sequence[str],
    server_rows: np.ndarray,
    client_names: Sequence[str] = (),
) -> str:
    """`label_histogram` of labels that are numbers, float32 `[samples]`: their mean and deviation at each client."""
    del server_rows  # a server that trains makes pseudo-labels, which are classes
    table = [["client", f"{class_names[0]}: mean", "deviation", "all", "domains"]]
    for client, rows in zip(named(client_names, client_rows), client_rows, strict=True):
        own = labels[rows].astype(np.float64)
        spread = [f"{own.mean():.4g}", f"{own.std():.4g}"] if len(own) else ["", ""]
        table.append([client, *spread, str(len(own)), names_of(domains, domain_names, rows)])
    return aligned(table, 4)


def named(client_names: Sequence[str], client_rows: Sequence[np.ndarray]) -> list[str]:
    """The clients' names, or their numbers where they have none."""
    return list(client_names) or [str(client) for client in range(len(client_rows))]


def names_of(domains: np.ndarray, domain_names: Sequence[str], rows: np.ndarray) -> str:
    """The domains of some samples."""
    return " ".join(domain_names[held] for held in np.unique(domains[rows]))


def aligned(table: Sequence[Sequence[str]], numbers: int) -> str:
    """A text table, whose first columns are `numbers` and end at the same place."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column < numbers else cell
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in table
    )
