"""Every defence against every attack, with one hostile client of five, and each defence's cost without an attack.

    fdgjax sweep robustness --out runs/robustness --data_dir DATA
    fdgjax sweep robustness --out runs/robustness --only digits            # rotated digits, which need no data

From no paper: FedAvg on rotated digits (ten rounds, 45 degrees unseen) and on ImageNet features of PACS, training the
last layer (five rounds, photo unseen). The cost without an attack is also measured with each end of the range of angles
unseen. Names: DATA-DEFENCE-ATTACK, and DATA-TARGET-DEFENCE. Left out are the attacks that stop an undefended run in its
first round (updates of NaN, or of 1e30), where there is no defence; and, on PACS, the backdoor, whose trigger
precomputed features cannot show.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

FIGURES = ("id_accuracy", "ood_accuracy")
ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "centered_clipping")
MIXED = ("trimmed_mean", "krum", "geometric_median")
"""The rules that are also tried after nearest-neighbour mixing."""
DEFENCES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "clip": {"clip": "median"},
    **{rule: {"rule": rule} for rule in ROBUST},
    **{f"mixed_{rule}": {"rule": rule, "mixing": True} for rule in MIXED},
}
ATTACKS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "sign_flip": {"kind": "sign_flip", "strength": 4.0},
    "million": {"kind": "scale", "strength": 1e6},
    "nan": {"kind": "nan"},
    "huge": {"kind": "scale", "strength": 1e30},
    "label_flip": {"kind": "label_flip"},
    "gaussian": {"kind": "gaussian", "strength": 10.0},
    "little": {"kind": "little_is_enough", "strength": 1.5},
    "inner": {"kind": "inner_product", "strength": 0.5},
    "backdoor": {"kind": "backdoor", "strength": 0.5},
}
"""Strengths: a fourfold sign flip cancels the four honest updates in a mean."""
PATIENT = {"backdoor": 60}
"""Rounds of attacks that take time to learn: one client's backdoor does not work after ten rounds, but does after
60."""
FATAL = ("nan", "huge")
GROSS = ("none", "sign_flip", "million", *FATAL)
"""The first of `ATTACKS`."""
DIGITS = Scale("rotated_digits", {"rounds": 10, "eval_every": 10, "method": {"client_learning_rate": 3e-3}})
PACS = Scale("pretrained_pacs", {"eval_every": 5, "model": {"frozen": -1}})
SCALES = {"paper": (DIGITS, PACS)}
ENDS = ("r0", "r75")


def cells(scale: str) -> Sequence[Cell]:
    """Attack by attack, all defences: on rotated digits (those of `ENDS` come after the attacks of `GROSS`), then on
    PACS."""
    digits, pacs = lookup("scale", scale, SCALES)

    def cell(name: str, chosen: Scale, defence: str, attack: str, **data: Any) -> Cell:
        lengths = {"rounds": PATIENT[attack], "eval_every": PATIENT[attack]} if attack in PATIENT else {}
        figures = (*FIGURES, "attack_success") if attack == "backdoor" else FIGURES
        changes = {"defence": DEFENCES[defence], "attack": ATTACKS[attack], "data": data, **lengths}
        return at_scale(name, "fedavg", chosen, figures, **changes)

    pairs = [(d, a) for a in ATTACKS for d in DEFENCES if not (d == "none" and a in FATAL)]
    on_digits = [cell(f"digits-{d}-{a}", digits, d, a, target="r45") for d, a in pairs]
    at_ends = [cell(f"digits-{end}-{d}", digits, d, "none", target=end) for end in ENDS for d in DEFENCES]
    on_pacs = [cell(f"pacs-{d}-{a}", pacs, d, a, target="photo", clients=5) for d, a in pairs if a != "backdoor"]
    gross = sum(a in GROSS for _, a in pairs)
    return [*on_digits[:gross], *at_ends, *on_digits[gross:], *on_pacs]
