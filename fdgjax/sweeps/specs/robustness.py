"""Every defence against every attack, one of five clients hostile, and what each defence costs without an attack.

    fdgjax sweep robustness --out runs/robustness --data_dir DATA
    fdgjax sweep robustness --out runs/robustness --only digits            # rotated digits, which need no data

Of no paper: FedAvg on rotated digits (ten rounds, 45 degrees unseen) and on PACS' features from ImageNet, the last
layer trained (five rounds, photo unseen). The price without an attack is measured at each end of the range of angles,
too. Names: DATA-DEFENCE-ATTACK, and DATA-TARGET-DEFENCE. Left out is what stops an undefended run in its first round:
an update of NaN, or of 1e30; and on PACS the backdoor, whose trigger no feature would show.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.sweeps.cells import Cell, Scale, configured
from fdgjax.utils.registry import lookup

FIGURES = ("id_accuracy", "ood_accuracy")
ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "centered_clipping")
MIXED = ("trimmed_mean", "krum", "geometric_median")
"""The rules that are tried behind nearest-neighbour mixing, too."""
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
"""Rounds of attacks that are learnt in time: in ten a backdoor of one client opens to nobody, in 60 it does."""
FATAL = ("nan", "huge")
GROSS = ("none", "sign_flip", "million", *FATAL)
"""The first of `ATTACKS`."""
DIGITS = Scale("rotated_digits", {"rounds": 10, "eval_every": 10, "method": {"client_learning_rate": 3e-3}})
PACS = Scale("pretrained_pacs", {"eval_every": 5, "model": {"frozen": -1}})
SCALES = {"paper": (DIGITS, PACS)}
ENDS = ("r0", "r75")


def cells(scale: str) -> Sequence[Cell]:
    """Attack by attack, all defences: on rotated digits, with the two ends after the grossest attacks, then on PACS."""
    digits, pacs = lookup("scale", scale, SCALES)

    def cell(name: str, chosen: Scale, defence: str, attack: str, **data: Any) -> Cell:
        lengths = {"rounds": PATIENT[attack], "eval_every": PATIENT[attack]} if attack in PATIENT else {}
        config = configured("fedavg", chosen, defence=DEFENCES[defence], attack=ATTACKS[attack], data=data, **lengths)
        return Cell(name, config, (*FIGURES, "attack_success") if attack == "backdoor" else FIGURES)

    pairs = [(d, a) for a in ATTACKS for d in DEFENCES if not (d == "none" and a in FATAL)]
    on_digits = [cell(f"digits-{d}-{a}", digits, d, a, target="r45") for d, a in pairs]
    at_ends = [cell(f"digits-{end}-{d}", digits, d, "none", target=end) for end in ENDS for d in DEFENCES]
    on_pacs = [cell(f"pacs-{d}-{a}", pacs, d, a, target="photo", clients=5) for d, a in pairs if a != "backdoor"]
    gross = sum(a in GROSS for _, a in pairs)
    return [*on_digits[:gross], *at_ends, *on_digits[gross:], *on_pacs]
