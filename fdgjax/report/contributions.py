"""The contributions of clients as a table and as a picture."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.report.drawing import sheet
from fdgjax.report.escaping import for_figure
from fdgjax.report.figure_files import saved
from fdgjax.utils.markdown import markdown_table


def contributions_markdown(found: Mapping[str, Any]) -> str:
    """The contributions as Markdown: Shapley values and influence of each client by domain, in points, and the
    accuracies of the coalitions, in percent.

    Args:
      found: `fdgjax.api.contributions.as_json`.
    """
    domains, seeds, orders = domains_of(found), len(found["seeds"]), found["orders"]
    estimated = 0 < orders < math.factorial(len(found["clients"]))
    how = f"estimated from {orders} random orders of the clients" if estimated else "exact, by all coalitions"
    errors = f"standard errors over {seeds} seeds" if seeds > 1 else "one seed, no standard errors"
    errors += "; the choice of the orders adds an error that is not shown" if estimated else ""
    header = ["client", *(named(name, found["target"]) for name in domains)]
    lines = [
        f"Shapley values, {how}, in points of accuracy ({errors}). Those of a domain add up to the accuracy of all",
        "clients minus that of a guess, 1 / classes.",
        "",
        *markdown_table(header, rows_of(found["shapley"], domains), right=header[1:]),
        "",
        "Influence: the accuracy of all clients minus that without the client, in points.",
        "",
        *markdown_table(header, rows_of(found["influence"], domains), right=header[1:]),
        "",
        "Accuracy of each coalition in percent, mean over the seeds. A present client's domain: its held-out images;",
        "the unseen domain and those of absent clients: all images, by the model for unseen domains.",
        "",
        *markdown_table(
            ["coalition", *header[1:]],
            [
                [
                    " + ".join(one["clients"]) or "nobody: a guess",
                    *(f"{100 * np.mean(one['accuracy'][domain]):.1f}" for domain in domains),
                ]
                for one in found["coalitions"]
            ],
            right=header[1:],
        ),
    ]
    return "\n".join(lines) + "\n"


def domains_of(found: Mapping[str, Any]) -> list[str]:
    """The unseen domain first, then the clients'."""
    return [*([found["target"]] if found["target"] else []), *found["clients"]]


def named(domain: str, target: str) -> str:
    """A column's title."""
    return f"{domain} (unseen)" if domain == target else domain


def rows_of(values: Mapping[str, Mapping[str, Mapping[str, float | None]]], domains: Sequence[str]) -> list[list[str]]:
    """A row for each client."""
    return [[client, *(points(own[domain]) for domain in domains)] for client, own in values.items()]


def points(one: Mapping[str, float | None]) -> str:
    """`+3.2 ± 0.4`, or without an error."""
    mean, error = one["mean"], one["error"]
    assert mean is not None, "there is a seed"
    return f"{100 * mean:+.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


def contributions_picture(found: Mapping[str, Any]) -> bytes:
    """A PNG file: a field for each client and domain, coloured by its Shapley value, which is written in it with its
    error; `found` as for `contributions_markdown`."""
    domains, clients = domains_of(found), found["clients"]
    values = np.array([[found["shapley"][client][domain]["mean"] for domain in domains] for client in clients])
    largest = float(np.abs(values).max()) or 1.0
    with sheet(2.2 + 0.95 * len(domains), 1.3 + 0.45 * len(clients)) as (drawing, axes):
        axes.imshow(values, cmap="PuOr_r", vmin=-largest, vmax=largest, aspect="auto", alpha=0.75)
        axes.set_xticks(
            range(len(domains)),
            [for_figure(name) + ("\n(unseen)" if name == found["target"] else "") for name in domains],
            rotation=25,
            ha="right",
            rotation_mode="anchor",
        )
        axes.set_yticks(range(len(clients)), list(map(for_figure, clients)))
        axes.set_xlabel("accuracy on")
        axes.set_ylabel("client")
        axes.set_title("Shapley values in points of accuracy", fontsize=10)
        axes.grid(visible=False)
        for i, client in enumerate(clients):
            for j, domain in enumerate(domains):
                axes.text(j, i, points(found["shapley"][client][domain]), ha="center", va="center", fontsize=8)
    return saved(drawing, "png", "contributions")
