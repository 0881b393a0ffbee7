"""The figures of predicted numbers in a report."""

from collections.abc import Sequence

from fdgjax.evaluation.number_figures import NUMBER_FIGURES, NUMBER_HEADLINES
from fdgjax.evaluation.statistics import spread
from fdgjax.report.reading import Run, names_in
from fdgjax.report.tables import SCOPE_TITLES, WHO, Cell, Column, Table, who

MAIN_NUMBERS = ("ood_rmse", "avg_rmse", "id_rmse")
"""The figures that runs which predict numbers are compared by: of each run the first that it has."""

RANKED_NUMBERS = tuple(dict.fromkeys((*MAIN_NUMBERS, *NUMBER_HEADLINES)))
"""The figures of predicted numbers that runs are ranked by."""


def numbers_table(runs: Sequence[Run]) -> Table:
    """RMSE, R2 and MAE of each run: means over clients and models, pooled samples, the worst and each domain."""
    domains = names_in(runs, "per_domain_rmse")
    rows: list[list[Cell]] = []
    for name, figure in NUMBER_FIGURES.items():
        for run in runs:
            cells = [spread(run.values(f"{scope}_{name}")) for scope in SCOPE_TITLES]
            cells += [spread([one.get(domain) for one in run.values(f"per_domain_{name}")]) for domain in domains]
            rows += [[*who(run), figure.title, *cells]] if any(cells) else []
    return Table(
        "numbers",
        "Errors of predicted numbers",
        "Mean ± sample standard deviation over seeds, at the reported round; RMSE and MAE in the label's unit, of "
        "which smaller values are better. A source domain by the models of the clients that hold it, the unseen domain "
        "by all models.",
        [
            *WHO,
            Column("figure", "figure"),
            *(Column(scope, title, "number", 1) for scope, title in SCOPE_TITLES.items()),
            *(Column(domain, f"on {domain}", "number", 1) for domain in domains),
        ],
        rows,
        ("panel", "figure"),
    )
