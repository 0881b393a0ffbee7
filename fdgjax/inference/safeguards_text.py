"""What a model card says of sets and distances (`fdgjax.inference.safeguards`)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.evaluation.best_set import prediction_interval
from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.left_out import LeftOut
from fdgjax.inference.safeguards import COVERAGE, NEAR, Safeguards
from fdgjax.utils.markdown import markdown_table

SAFEGUARDS = """A set holds the classes with `1 - p <= q`. q is the k-th smallest `1 - p(label)` of n = {n:,} held-out
{many} of {whose}, `k = ceil((n + 1) c)`: for {many} like these it holds the true class with probability c, at
least. The program returns no sets: `model.json` has q, `set_quantiles`, by c.

A distance is that of the network's features from those of the nearest class of {own} training {many}
(Mahalanobis), about 1 for these. {near} The program
computes no distances: `fdgjax predict` with the run's folder does (`--refuse-above`).

Far means: above that distance. The sets are those for c = {coverage:g}.

{table}

Those of {whose} are held-out ones; quantiles{fitted} of one half of them were tried on the other. {unseen}"""
COLUMNS = ("n", "coverage", "classes in a set", "far", "right, of those not far", "right, of the far")
"""Of the table of figures, after the name of the samples."""
NOWHERE_MEASURED = "No domain was left out of training, so that none shows what happens elsewhere."
LEFT_OUT_MEASURED = (
    "This model was trained on the domains that are named as left out; their figures are those of runs with the same "
    "settings that did not see them, means over the seeds."
)
INTERVALS = (
    "Both are intervals of 95 %, for a domain that is drawn like these few; wide ones mean that little is known of it."
)
UNSEEN_MEASURED = "Nothing was set by the unseen domain; another one may be further away, and its coverage lower."


def safeguards_said(classifier: Classifier, left_out: LeftOut, many: str, measurable: bool) -> str:
    """What sets and distances promise, and their figures; `left_out`: see `card_of`. many: what samples are called.
    measurable: whether they can still be measured, on the data of the model's run."""
    guards, target = classifier.safeguards, classifier.outline.data.target
    if guards is None:
        how = ": `fdgjax export --guarded` measures them on the run's data" if measurable else ""
        return f"Sets of classes and distances from the training {many} were not measured for this model{how}."
    whose, own = ("the clients", "the clients'")
    if classifier.client != UNSEEN:
        whose, own = classifier.whose, f"{classifier.whose}'s"
    kind = "calibrated" if classifier.calibrated else "plain"
    figures, elsewhere = guards.figures[kind], {name: each[kind] for name, each in left_out.items()}
    names = {"own": f"of {whose}", "unseen": f"of the unseen domain `{target}`"}
    rows = [safeguard_row(names[name], each) for name, each in figures.items()]
    rows += [safeguard_row(f"of `{name}`, while it was left out", each) for name, each in elsewhere.items()]
    nowhere = "" if elsewhere else NOWHERE_MEASURED
    return SAFEGUARDS.format(
        n=len(guards.distances),
        many=many,
        whose=whose,
        own=own,
        near=near_said(guards, own, many),
        coverage=COVERAGE,
        table="\n".join(markdown_table([many, *COLUMNS], rows, right=COLUMNS)),
        fitted=" and the temperature" if classifier.calibrated else "",
        unseen=" ".join(
            filter(None, [UNSEEN_MEASURED if "unseen" in figures else nowhere, left_out_said(list(elsewhere.values()))])
        ),
    )


def near_said(guards: Safeguards, own: str, many: str) -> str:
    """Up to which distance a sample is near. own: whose samples were measured, as a genitive. many: what samples are
    called."""
    farthest = guards.farthest(NEAR)
    if farthest == math.inf:
        return f"{len(guards.distances)} held-out {many} are too few for a distance that {NEAR:.0%} do not exceed."
    return f"{NEAR:.0%} of {own} held-out {many} are not above {farthest:.3f}."


def left_out_said(each: Sequence[Mapping[str, float | None]]) -> str:
    """What the figures of left-out domains say of a further one; nothing without any."""
    if not each:
        return ""
    said = [LEFT_OUT_MEASURED]
    for key, what in (("accuracy", "an accuracy"), ("coverage", "a coverage")):
        known = [value for one in each if (value := one[key]) is not None]
        if bounds := prediction_interval(known):
            low, high = (f"{100 * bound:.0f}" for bound in bounds)
            said.append(f"A further domain is expected to have {what} between {low} and {high} %.")
    return " ".join([*said, INTERVALS]) if len(said) > 1 else said[0]


def safeguard_row(name: str, figures: Mapping[str, Any]) -> list[str]:
    """A row of the table of figures, see `fdgjax.inference.safeguards.figures_of`."""
    shares = [figures[key] for key in ("coverage", "size", "far", "accuracy_near", "accuracy_far")]
    return [name, f"{figures['n']:,.0f}", *("" if share is None else f"{share:.3f}" for share in shares)]
