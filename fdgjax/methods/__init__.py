"""The methods: one line enrols one everywhere (command line, shared tests, README table)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fdgjax.contract import Method, Setup
from fdgjax.methods.central import Central, central
from fdgjax.methods.ditto import Ditto, ditto
from fdgjax.methods.fdse import FDSE, fdse
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.fedbn import FedBN, fedbn
from fdgjax.methods.fedprox import FedProx, fedprox
from fdgjax.methods.hfedf import HFedF, hfedf
from fdgjax.methods.lgfedavg import LGFedAvg, lgfedavg
from fdgjax.methods.local import Local, local
from fdgjax.methods.partialfed import PartialFed, partialfed
from fdgjax.methods.pfedhn import PFedHN, pfedhn


class Entry(NamedTuple):
    """A method's hyperparameters (a frozen dataclass), its builder and one line on what it is.

    unit: the entry of `fdgjax.models.UNITS` that the method is made for; '' where any model will do.
    """

    hyper: type[Any]
    build: Callable[[Setup, Any], Method]
    summary: str
    unit: str = ""


METHODS: Mapping[str, Entry] = {
    "hfedf": Entry(HFedF, hfedf, "hypernetwork, aligned gradients, smoothed server (hFedF v2)"),
    "pfedhn": Entry(PFedHN, pfedhn, "hypernetwork, averaged gradients (Shamsian et al., 2021)"),
    "fedavg": Entry(FedAvg, fedavg, "weighted mean, any server optimiser (McMahan et al., 2017)"),
    "fedprox": Entry(FedProx, fedprox, "FedAvg with a proximal term (Li et al., 2020)"),
    "ditto": Entry(Ditto, ditto, "FedAvg and a personal model near it for each client (Li et al., 2021)"),
    "lgfedavg": Entry(LGFedAvg, lgfedavg, "local representations, shared last layers (Liang et al., 2020)"),
    "partialfed": Entry(PartialFed, partialfed, "each client learns which layers to load (Sun et al., 2021)"),
    "local": Entry(Local, local, "each client by itself, nothing is sent"),
    "fdse": Entry(FDSE, fdse, "shared extractors by consensus, personal skew erasers by similarity (FDSE)", unit="dse"),
    "fedbn": Entry(FedBN, fedbn, "FedAvg with BatchNorm layers that stay local (Li et al., 2021)"),
    "central": Entry(Central, central, "all training data at one place, the reference without federation"),
}
