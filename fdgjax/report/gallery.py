"""Every table and figure a report may have, in its order."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fdgjax.evaluation import HEADLINES
from fdgjax.evaluation.number_figures import NUMBER_HEADLINES
from fdgjax.evaluation.probability_figures import figure_headlines
from fdgjax.report import (
    domain_figures,
    figures,
    method_figures,
    number_figures,
    probability_figures,
    probe_figures,
    rankings,
    state_figures,
    tables,
)
from fdgjax.report.drawing import Figure
from fdgjax.report.number_figures import MAIN_NUMBERS, RANKED_NUMBERS
from fdgjax.report.rankings import ranking_by_target, ranking_table
from fdgjax.report.reading import Run
from fdgjax.report.tables import Table, targets_table, with_columns


class Exhibit(NamedTuple):
    """title, caption: in the page. draw: makes the figure, None where the runs have no data for it. of_state: whether
    it is of trained states."""

    title: str
    caption: str
    draw: Callable[[Sequence[Run]], Figure | None]
    of_state: bool = False


FIGURES: Mapping[str, Exhibit] = {
    "accuracy_by_round": Exhibit(
        "Accuracy against rounds",
        "Line: mean over seeds. Band: one sample standard deviation, its edges in the line's dashes. Level lines: what "
        "predicting the unseen domain's largest class alone would reach, what central training reports, and what a "
        "paper prints (in the colour of its method), where they are known.",
        figures.accuracy_by_round,
    ),
    "accuracy_by_bytes": Exhibit(
        "Accuracy against bytes",
        "Bytes that all clients sent and received so far. Line: mean over seeds; band: one sample standard deviation. "
        "Level lines as above.",
        figures.accuracy_by_bytes,
    ),
    "accuracy_by_domain": Exhibit(
        "Accuracy on each domain, as bars",
        "At the reported round. Whiskers: one sample standard deviation over seeds. The unseen domain stands on a "
        "ground of its own; dotted there: what predicting its largest class alone would reach, where that is known.",
        domain_figures.accuracy_by_domain,
    ),
    "unseen_domains": Exhibit(
        "Accuracy on each unseen domain, seed by seed",
        "A dot for each domain and seed, at the reported round; a stroke at the mean over seeds.",
        domain_figures.unseen_domains,
    ),
    "errors_by_round": Exhibit(
        "Errors of predicted numbers against rounds",
        "In the label's unit. Line: mean over seeds. Band: one sample standard deviation. Of RMSE smaller values are "
        "better, of R2 larger ones.",
        partial(figures.curves_by_round, keys=list(NUMBER_HEADLINES)),
    ),
    "errors_by_domain": Exhibit(
        "Errors of predicted numbers on each domain, as bars",
        "Root mean squared error in the label's unit, at the reported round: smaller is better. Whiskers: one sample "
        "standard deviation over seeds. The unseen domain stands on a ground of its own.",
        domain_figures.errors_by_domain,
    ),
    "unseen_errors": Exhibit(
        "Errors on each unseen domain, seed by seed",
        "Root mean squared error in the label's unit: smaller is better. A dot for each domain and seed, at the "
        "reported round; a stroke at the mean over seeds.",
        domain_figures.unseen_errors,
    ),
    "fairness": Exhibit(
        "Fairness, as points",
        "The worst domain or client against the standard deviation over all of them, mean over seeds: better is up and "
        "to the left. Whiskers: one sample standard deviation over seeds.",
        domain_figures.fairness_figure,
    ),
    "radar": Exhibit(
        "Every domain and client",
        "Mean over seeds, each axis as a fraction of the best accuracy on it (as FDSE, figure 3).",
        domain_figures.radar,
    ),
    "aggregation_weights": Exhibit(
        "Aggregation weights",
        "A line for each client, mean over seeds and, where each layer has its own weights, over layers; dotted: equal "
        "weights (as hFedF, figure 5a). Runs whose weights never change are left out.",
        method_figures.aggregation_weights,
    ),
    "discard_rate": Exhibit(
        "Discarded gradients",
        "Share of the gradients' entries that clients drop, mean over clients (FedGaLA).",
        method_figures.discard_rate_figure,
    ),
    "probe_by_labels": Exhibit(
        "Probe accuracy by the share of labels",
        "A linear probe without any training of the encoder: dotted, on raw pixels; dashed, on the untrained encoder.",
        method_figures.probe_by_labels,
    ),
    "probes_again": Exhibit(
        "Probes after training",
        "By fdgjax probe, with other shares of labels or another layer (as FedGaLA, figure 3a). Without any training "
        "of the encoder: dotted, on raw pixels; dashed, on the untrained encoder.",
        probe_figures.probes_again,
    ),
    "domain_shift": Exhibit(
        "Domain shift and gradients",
        "Each point is a pair of domains: the covariance of their gradients against the mutual information of their "
        "features, by fdgjax shift (as FedGaLA, figure 2); empty where one of them is unseen. Whiskers: one "
        "deviation over gradients.",
        probe_figures.domain_shift,
    ),
    "reliability": Exhibit(
        "Reliability",
        "Accuracy against confidence in 15 bins, over all seeds; on the unseen domain, or on test samples where there "
        "is none. Above the diagonal a model is underconfident. Bins with less than half a percent of the samples, or "
        "with fewer than five, are left out.",
        method_figures.reliability,
    ),
    "figures_by_round": Exhibit(
        "Figures of probabilities against rounds",
        "With config.figures. Line: mean over seeds. Band: one sample standard deviation. Of log loss and Brier score "
        "smaller values are better.",
        lambda runs: figures.curves_by_round(runs, list(figure_headlines())),
    ),
    "calibration_by_domain": Exhibit(
        "Calibration on each domain",
        "With config.figures: of two classes the share of samples of the second one against its probability, of more "
        "classes the accuracy against the largest probability, in 10 bins, over all seeds. Below the diagonal "
        "probabilities are too large. Bins with fewer than five samples are left out.",
        probability_figures.calibration_by_domain,
    ),
    "confidence": Exhibit(
        "Confidence of right and of wrong predictions",
        "The same samples; each histogram sums to 100 % (as hFedF, figure 6b).",
        method_figures.confidence,
    ),
    "embeddings": Exhibit(
        "Client embeddings",
        "The hypernetwork's embedding of each client, with the client's number (as hFedF, figure 6a). First seed.",
        state_figures.embeddings,
        of_state=True,
    ),
    "divergence": Exhibit(
        "Divergence of the clients' models",
        "Mean distance between the parameters of two clients, relative to their mean norm, layer by layer (as hFedF, "
        "figure 5b); of the first 20 clients and the first seed. Methods whose clients have the same model, up to one "
        "part in 10,000, are left out.",
        state_figures.divergence_figure,
        of_state=True,
    ),
    "features": Exhibit(
        "Features",
        "The last layer's input for held-out samples, each from the model that is evaluated on it, in two dimensions "
        "by t-SNE (as FDSE, figure 4). First seed.",
        state_figures.features,
        of_state=True,
    ),
}
"""A report draws each of these for which the runs have data."""

TABLES: Mapping[str, Callable[..., Table]] = {
    "ranking": partial(ranking_table, figures=tables.ACCURACIES, kind="percent", name="ranking", title="Ranking"),
    "numbers_ranking": partial(
        ranking_table,
        figures=RANKED_NUMBERS,
        kind="number",
        name="numbers_ranking",
        title="Ranking by errors of predicted numbers",
    ),
    "targets": partial(
        targets_table, figures=HEADLINES, kind="percent", name="targets", title="Each method on each unseen domain"
    ),
    "numbers_targets": partial(
        targets_table,
        figures=NUMBER_HEADLINES,
        kind="number",
        name="numbers_targets",
        title="Errors of each method on each unseen domain",
    ),
    "ranking_by_target": partial(
        ranking_by_target, main=tables.MAIN, kind="percent", name="ranking_by_target", title="Ranking on each domain"
    ),
    "numbers_ranking_by_target": partial(
        ranking_by_target,
        main=MAIN_NUMBERS,
        kind="number",
        name="numbers_ranking_by_target",
        title="Ranking by errors of predicted numbers on each domain",
    ),
    "results": tables.results,
    "numbers": number_figures.numbers_table,
    "figures": probability_figures.figures_table,
    "figures_by_domain": probability_figures.figures_by_domain,
    "figures_ranking": lambda runs: ranking_table(
        runs,
        [key for key in figure_headlines() if key.startswith(("ood_", "avg_"))],
        kind="decimals",
        name="figures_ranking",
        title="Ranking by figures of probabilities",
    ),
    "settings": rankings.settings_table,
    "domains": tables.domains,
    "fairness": tables.fairness_table,
    "communication": tables.communication,
    "probes": tables.probes,
}


def make_tables(runs: Sequence[Run], reach: Sequence[float] = ()) -> list[Table]:
    """The tables that have rows, without empty columns."""
    given: Mapping[str, dict[str, Any]] = {"communication": {"reach": reach}}
    made = [build(runs, **given.get(name, {})) for name, build in TABLES.items()]
    return [without_empty_columns(table) for table in made if table.rows]


def without_empty_columns(table: Table) -> Table:
    """The same table, without columns that have no value."""
    kept = [i for i in range(len(table.columns)) if any(row[i] is not None for row in table.rows)]
    return with_columns(table, kept)
