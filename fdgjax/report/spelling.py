"""Names of methods as their papers write them."""

from collections.abc import Mapping

SPELLINGS: Mapping[str, str] = {
    "afl": "AFL",
    "atp": "ATP",
    "cbafed": "CBAFed",
    "ccst": "CCST",
    "central": "Central",
    "coral": "CORAL",
    "ditto": "Ditto",
    "fdse": "FDSE",
    "fedadg": "FedADG",
    "fedasam": "FedASAM",
    "fedavg": "FedAvg",
    "fedbn": "FedBN",
    "fedbyol": "FedBYOL",
    "fedccrl": "FedCCRL",
    "fedclip": "FedCLIP",
    "feddg": "FedDG",
    "feddg_ga": "FedDG-GA",
    "feddyn": "FedDyn",
    "fedema": "FedEMA",
    "fedfa": "FedFA",
    "fedgala": "FedGaLA",
    "fedgma": "FedGMA",
    "fedheal": "FedHEAL",
    "fediir": "FedIIR",
    "fedlesam": "FedLESAM",
    "fedlgf": "FedLGF",
    "fedmoco": "FedMoCo",
    "fedomg": "FedOMG",
    "fedproto": "FedProto",
    "fedprox": "FedProx",
    "fedsam": "FedSAM",
    "fedsimclr": "FedSimCLR",
    "fedsimsiam": "FedSimSiam",
    "fedsr": "FedSR",
    "fish": "Fish",
    "fishr": "Fishr",
    "fpl": "FPL",
    "gperxan": "gPerXAN",
    "groupdro": "GroupDRO",
    "hfedf": "hFedF",
    "irm": "IRM",
    "lgfedavg": "LG-FedAvg",
    "local": "Local",
    "mixup": "mixup",
    "mmd": "MMD",
    "moon": "MOON",
    "partialfed": "PartialFed",
    "pfedhn": "pFedHN",
    "rscfed": "RSCFed",
    "scaffold": "SCAFFOLD",
    "semifl": "SemiFL",
    "ssfl": "SSFL",
    "stablefdg": "StableFDG",
    "uap": "UAP",
    "vrex": "VREx",
}


def spelled(name: str) -> str:
    """A series' name whose method, its first word, is spelt as in its paper; other names are unchanged."""
    for word in (name.partition(",")[0], name.partition(" ")[0]):
        if word in SPELLINGS:
            return SPELLINGS[word] + name.removeprefix(word)
    return name
