"""The methods: one line enrols one everywhere (command line, shared tests, README table)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fdgjax.contract import Method, Setup
from fdgjax.methods.cbafed import CBAFed, cbafed
from fdgjax.methods.central import Central, central
from fdgjax.methods.ditto import Ditto, ditto
from fdgjax.methods.fdse import FDSE, fdse
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.fedbn import FedBN, fedbn
from fdgjax.methods.feddg import FedDG, feddg
from fdgjax.methods.feddg_ga import FedDGGA, feddg_ga
from fdgjax.methods.feddyn import FedDyn, feddyn
from fdgjax.methods.fedema import FedEMA, fedema
from fdgjax.methods.fedfa import FedFA, fedfa
from fdgjax.methods.fedgala import FedGaLA, fedgala
from fdgjax.methods.fedgma import FedGMA, fedgma
from fdgjax.methods.fedheal import FedHeal, fedheal
from fdgjax.methods.fedprox import FedProx, fedprox
from fdgjax.methods.fedsr import FedSR, fedsr
from fdgjax.methods.hfedf import HFedF, hfedf
from fdgjax.methods.lgfedavg import LGFedAvg, lgfedavg
from fdgjax.methods.local import Local, local
from fdgjax.methods.moon import Moon, moon
from fdgjax.methods.partialfed import PartialFed, partialfed
from fdgjax.methods.parts.client_models import CLIENT_MODELS
from fdgjax.methods.parts.pseudo_labelled import PseudoLabels, on_pseudo_labels
from fdgjax.methods.pfedhn import PFedHN, pfedhn
from fdgjax.methods.rscfed import RSCFed, rscfed
from fdgjax.methods.scaffold import Scaffold, scaffold
from fdgjax.methods.self_supervised import (
    FedBYOL,
    FedMoCo,
    FedSimCLR,
    FedSimSiam,
    fedbyol,
    fedmoco,
    fedsimclr,
    fedsimsiam,
)
from fdgjax.methods.semifl import SemiFL, semifl
from fdgjax.methods.ssfl import SSFL, ssfl
from fdgjax.methods.uap import UAP, uap

__all__ = ["CLIENT_MODELS", "METHODS", "Entry", "PseudoLabels", "on_pseudo_labels"]


class Entry(NamedTuple):
    """A method's hyperparameters (a frozen dataclass), its builder and one line on what it is.

    unit: the entry of `fdgjax.models.UNITS` that the method is made for; '' where any model will do.
    head: the entry of `fdgjax.models.HEADS` that it is made for; '' where any model will do.
    unlabelled: whether it learns without any labels, and is judged by a linear probe.
    server: whether it is made for a server that holds labelled data, and clients without labels.
    """

    hyper: type[Any]
    build: Callable[[Setup, Any], Method]
    summary: str
    unit: str = ""
    head: str = ""
    server: bool = False
    unlabelled: bool = False


METHODS: Mapping[str, Entry] = {
    "hfedf": Entry(HFedF, hfedf, "hypernetwork, aligned gradients, smoothed server (hFedF v2)"),
    "pfedhn": Entry(PFedHN, pfedhn, "hypernetwork, averaged gradients (Shamsian et al., 2021)"),
    "fdse": Entry(FDSE, fdse, "shared extractors by consensus, personal skew erasers by similarity (FDSE)", unit="dse"),
    "fedgala": Entry(
        FedGaLA,
        fedgala,
        "no labels: gradients aligned at clients and updates at the server (FedGaLA)",
        head="projection",
        unlabelled=True,
    ),
    "fedsimclr": Entry(
        FedSimCLR, fedsimclr, "no labels: SimCLR at each client, averaged", head="projection", unlabelled=True
    ),
    "fedmoco": Entry(FedMoCo, fedmoco, "no labels: MoCo at each client, averaged", head="projection", unlabelled=True),
    "fedbyol": Entry(FedBYOL, fedbyol, "no labels: BYOL at each client, averaged", head="prediction", unlabelled=True),
    "fedsimsiam": Entry(
        FedSimSiam, fedsimsiam, "no labels: SimSiam at each client, averaged", head="prediction", unlabelled=True
    ),
    "fedema": Entry(
        FedEMA,
        fedema,
        "no labels: BYOL from one's own and the mean model (Zhuang et al., 2022)",
        head="prediction",
        unlabelled=True,
    ),
    "uap": Entry(UAP, uap, "labelled server, unlabelled clients, features aligned to Gaussians (UAP)", server=True),
    "ssfl": Entry(SSFL, ssfl, "labelled server, clients on pseudo-labels (UAP's baseline)", server=True),
    "semifl": Entry(SemiFL, semifl, "labelled server, confident pseudo-labels, MixUp (Diao et al., 2022)", server=True),
    "rscfed": Entry(RSCFed, rscfed, "labelled server, mean teachers, sub-consensus (Liang et al., 2022)", server=True),
    "cbafed": Entry(CBAFed, cbafed, "labelled server, class-balanced thresholds (Li et al., 2023)", server=True),
    "fedavg": Entry(FedAvg, fedavg, "weighted mean, any server optimiser (McMahan et al., 2017)"),
    "fedprox": Entry(FedProx, fedprox, "FedAvg with a proximal term (Li et al., 2020)"),
    "scaffold": Entry(Scaffold, scaffold, "gradients corrected by control variates (Karimireddy et al., 2020)"),
    "feddyn": Entry(FedDyn, feddyn, "dynamic regularisation (Acar et al., 2021)"),
    "moon": Entry(Moon, moon, "features contrasted with former models (Li et al., 2021)"),
    "fedheal": Entry(FedHeal, fedheal, "consistent updates, weights by distance (Chen et al., 2024)"),
    "fedfa": Entry(FedFA, fedfa, "features augmented by how clients differ (Zhou & Konukoglu, 2023)", unit="augmented"),
    "fedgma": Entry(FedGMA, fedgma, "updates masked where clients' signs disagree (Tenison et al., 2023)"),
    "feddg_ga": Entry(FedDGGA, feddg_ga, "weights by what averaging costs a client (Zhang et al., 2023)"),
    "fedsr": Entry(FedSR, fedsr, "simple random representations (Nguyen et al., 2022)", head="gaussian"),
    "feddg": Entry(FedDG, feddg, "amplitude spectra of images exchanged: shares data statistics (Liu et al., 2021)"),
    "fedbn": Entry(FedBN, fedbn, "FedAvg with BatchNorm layers that stay local (Li et al., 2021)"),
    "lgfedavg": Entry(LGFedAvg, lgfedavg, "local representations, shared last layers (Liang et al., 2020)"),
    "partialfed": Entry(PartialFed, partialfed, "each client learns which layers to load (Sun et al., 2021)"),
    "ditto": Entry(Ditto, ditto, "FedAvg and a personal model near it for each client (Li et al., 2021)"),
    "local": Entry(Local, local, "each client by itself, nothing is sent"),
    "central": Entry(Central, central, "all training data at one place, the reference without federation"),
}
