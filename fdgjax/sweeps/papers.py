"""The papers' experiments by name: a spec for each."""

from collections.abc import Mapping
from pathlib import Path

from fdgjax.sweeps.cells import SPECS

EXPERIMENTS: Mapping[str, Path] = {
    "hfedf-pacs": SPECS / "hfedf_pacs.py",
    "hfedf-pacs-ablation": SPECS / "hfedf_pacs_ablation.py",
    "hfedf-clients": SPECS / "hfedf_clients.py",
    "hfedf-fewshot": SPECS / "hfedf_fewshot.py",
    "fdse-pacs": SPECS / "fdse_pacs.py",
    "fdse-office": SPECS / "fdse_office.py",
    "fdse-ablation": SPECS / "fdse_ablation.py",
    "fdse-office-ablation": SPECS / "fdse_office_ablation.py",
    "uap-rotated-mnist": SPECS / "uap_rotated_mnist.py",
    "uap-pacs": SPECS / "uap_pacs.py",
    "fedgala-pacs": SPECS / "fedgala_pacs.py",
    "fedgala-ablation": SPECS / "fedgala_ablation.py",
}
