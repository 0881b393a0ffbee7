"""Named settings, of data sets and of papers' protocols: `--config=METHOD:PRESET`."""

from collections.abc import Mapping
from typing import Any

from fdgjax.data.sources import heart_disease

HFEDF: Mapping[str, Any] = {
    "data": {"name": "pacs", "target": "photo", "image_size": 64, "crop_size": 32, "augmentation": "domainbed"},
    "checkpoint_every": 5,
}
"""hFedF v2, Table 11: PACS at 32 pixels, "following DomainBed and FedSR guidelines", which both augment. The crops are
taken from images of 64 pixels, our choice."""

FDSE_PAPER: Mapping[str, Any] = {
    "rounds": 500,
    "batch_size": 50,
    "local_epochs": 5,
    "selection": "validation",
    "client_model": "trained",
    "model": {"name": "alexnet"},
    "method": {
        "client_optimizer": "sgd",
        "client_learning_rate": 0.05,
        "client_weight_decay": 1e-3,
        "client_learning_rate_decay": 0.998,
        "client_clip": 10.0,
    },
}
"""FDSE, section 5.1 and A7.4: AlexNet, one client per domain, 224x224, pixels in [0, 1] (official code), the same
local training for every method. Learning rate and weight decay are the official ones for PACS; the paper takes the best
rate of {0.001, 0.01, 0.05, 0.1, 0.5} for each method."""

FDSE: Mapping[str, Any] = {
    **FDSE_PAPER,
    "eval_every": 1,
    "selection": "validation_by_size",
    "model": {"name": "alexnet", "unbiased_variance": True, "masked_statistics": True},
    "method": {**FDSE_PAPER["method"], "client_learning_rate_decay": 0.9998},
}
"""The same by FDSE's official code: the learning rate's decay of `config/*.yml`, 256x256 pixels (`Resize([256, 256])`
in each task), FLGo's evaluation after each round, selection by clients' sizes (`get_run_res.py`, `PerRunLogger`), and
PyTorch's BatchNorm. Learning rates: `config/pacs/fdse.yml` (0.05), `config/run_office.yml` and `config/domainnet.yml`
(0.1). Epochs are the paper's, which `config/pacs` and `config/office` have, too. Methods add what the code has for them
alone (`fdgjax.methods.parts.setting_presets.official_fdse`)."""


def fdse_on(dataset: str, image_size: int = 256, settings: Mapping[str, Any] = FDSE, **changes: Any) -> dict[str, Any]:
    """FDSE's protocol of Table 1 on a data set."""
    data = {"name": dataset, "protocol": "every_domain", "target": "", "image_size": image_size, "scaling": "unit"}
    return {**settings, "data": data} | changes


FDSE_FASTER: Mapping[str, Any] = {"method": {**FDSE["method"], "client_learning_rate": 0.1}}
"""The official learning rate for Office-Caltech10 and DomainNet."""

FEDGALA: Mapping[str, Any] = {
    "rounds": 100,
    "local_epochs": 7,
    "batch_size": 128,
    "drop_last": True,
    "model": {"name": "resnet18"},
    "data": {"name": "pacs", "target": "photo", "image_size": 32},
}
"""FedGaLA, section 5.1 and appendix D: ResNet-18 for small images, 32x32."""


UAP: Mapping[str, Any] = {
    "rounds": 40,
    "batch_size": 64,
    "local_epochs": 5,
    "method": {
        "client_optimizer": "sgd",
        "client_learning_rate": 0.002,
        "client_weight_decay": 0.0,
        "client_momentum": 0.0,
        "client_schedule": "cosine",
    },
}
"""UAP, section 5: one labelled domain at the server, one unseen domain, the others at clients without labels; the same
local training for every method."""


def uap_on(
    dataset: str, model: Mapping[str, Any], image_size: int = 0, same_images: bool = False, **changes: Any
) -> Mapping[str, Any]:
    """UAP's setting on a data set."""
    data = {
        "name": dataset,
        "protocol": "labelled_server",
        "target": "",
        "image_size": image_size,
        "same_images": same_images,
    }
    return {**UAP, "model": model, "data": data} | changes


PRETRAINED: Mapping[str, Any] = {
    "rounds": 5,
    "local_epochs": 1,
    "eval_every": 1,
    "model": {
        "name": "efficientnet_lite0",
        "pretrained": "efficientnet_lite0",
        "frozen": 7,
        "frozen_statistics": True,
    },
    "method": {"client_optimizer": "adam", "client_learning_rate": 1e-3, "client_weight_decay": 1e-4},
}
"""Our own: a network pretrained on ImageNet, of which only the last block, the last convolution and the last layer are
trained, in minutes on a CPU. The local training is the same for every method."""


def pretrained_on(dataset: str) -> Mapping[str, Any]:
    """The pretrained network on a data set, with images of 128x128."""
    return {**PRETRAINED, "data": {"name": dataset, "image_size": 128}}


PHOTOGRAPHS: Mapping[str, Any] = {"model": {"name": "resnet18_imagenet"}, "data": {"image_size": 224}}
"""For data sets on which the literature trains ResNet-18 on images of ImageNet's size, 224x224."""

TABLE: Mapping[str, Any] = {
    "rounds": 30,
    "local_epochs": 1,
    "batch_size": 32,
    "figures": "auroc,balanced_accuracy,log_loss",
    "model": {"name": "mlp"},
    "method": {"client_learning_rate": 1e-3},
}
"""Our own, for tables of some hundred rows a domain: a small network, seconds on a CPU."""


def table_on(dataset: str, **columns: str) -> Mapping[str, Any]:
    """The setting for tables on a data set whose columns are known."""
    return {**TABLE, "data": {"name": dataset, "standardise": True, **columns}}


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "rotated_digits": {"model": {"name": "digits_cnn"}, "data": {"target": "r45"}},
    "rotated_mnist": {"model": {"name": "digits_cnn"}, "data": {"target": "r45"}},
    "pacs": {"data": {"target": "photo", "image_size": 32}},
    "office_caltech10": {"data": {"image_size": 32}},
    "domainnet": {"data": {"image_size": 32}},
    "domainnet10": {"data": {"image_size": 32}},
    "vlcs": PHOTOGRAPHS,
    "office_home": PHOTOGRAPHS,
    "terra_incognita": PHOTOGRAPHS,
    "folder": {"data": {"image_size": 32}},
    "table": table_on("table"),
    "arrays": {**TABLE, "data": {"name": "arrays"}},
    "heart_disease": table_on(
        "heart_disease", label=heart_disease.LABEL, categorical=heart_disease.CATEGORICAL, missing="?,-9"
    ),
    "hfedf_pacs": HFEDF,
    "fdse_pacs": fdse_on("pacs"),
    "fdse_office_caltech10": fdse_on("office_caltech10", local_epochs=1, **FDSE_FASTER),
    "fdse_domainnet10": fdse_on("domainnet10", **FDSE_FASTER),
    # What FDSE's authors changed in January 2026 is in the method's own presets; for other methods nothing changed.
    "fdse_pacs_2026": fdse_on("pacs"),
    "fdse_office_caltech10_2026": fdse_on("office_caltech10", local_epochs=1, **FDSE_FASTER),
    "fdse_pacs_paper": fdse_on("pacs", 224, FDSE_PAPER),
    "fdse_office_caltech10_paper": fdse_on("office_caltech10", 224, FDSE_PAPER, local_epochs=1),
    "fdse_domainnet10_paper": fdse_on("domainnet10", 224, FDSE_PAPER),
    # For a CPU: a twelfth of the pixels and a sixteenth of the weights.
    "fdse_pacs_small": fdse_on(
        "pacs",
        64,
        FDSE_PAPER,
        rounds=20,
        eval_every=1,
        model={"name": "alexnet", "width": 0.25},
    ),
    "fedgala_pacs": FEDGALA,
    # For a CPU: a small ResNet at a quarter of its width, 80 epochs instead of 700, and settings to match. The unseen
    # domain is the largest one, which leaves the fewest images to train on.
    "fedgala_pacs_small": {
        **FEDGALA,
        "rounds": 40,
        "local_epochs": 2,
        "batch_size": 64,
        "eval_every": 5,
        "model": {"name": "resnet10", "width": 0.25},
        "data": {"name": "pacs", "target": "sketch", "image_size": 32},
        "probe": {"layer": "features"},
    },
    "pretrained_pacs": pretrained_on("pacs"),
    "pretrained_office_caltech10": pretrained_on("office_caltech10"),
    "pretrained_folder": pretrained_on("folder"),
    "uap_rotated_mnist": uap_on("rotated_mnist", {"name": "dirt_cnn"}, same_images=True),
    # For a CPU: a quarter of the channels, 15 rounds instead of 40, and an optimiser that makes progress in 15.
    "uap_rotated_mnist_small": uap_on(
        "rotated_mnist",
        {"name": "mnist_cnn", "width": 0.25},
        same_images=True,
        rounds=15,
        method=UAP["method"] | {"client_optimizer": "adam", "client_learning_rate": 1e-3},
    ),
    "uap_pacs": uap_on("pacs", {"name": "resnet18_imagenet"}, 224),
    "uap_vlcs": uap_on("vlcs", {"name": "resnet18_imagenet"}, 224),
    "uap_office_home": uap_on("office_home", {"name": "resnet18_imagenet"}, 224),
    "uap_terra_incognita": uap_on("terra_incognita", {"name": "resnet18_imagenet"}, 224),
}
"""The presets by name. A preset that does not set `data.name` has the name of its data set."""

PURPOSES: Mapping[str, str] = {
    "hfedf_pacs": "hFedF, Table 11, augmented",
    "fdse_pacs": "FDSE, Table 1, by its official code",
    "fdse_office_caltech10": "FDSE, Table 1, by its official code",
    "fdse_domainnet10": "FDSE, Table 1, by its official code",
    "fdse_pacs_2026": "FDSE, the authors' second program",
    "fdse_office_caltech10_2026": "FDSE, the authors' second program",
    "fdse_pacs_paper": "FDSE, Table 1, by the paper",
    "fdse_office_caltech10_paper": "FDSE, Table 1, by the paper",
    "fdse_domainnet10_paper": "FDSE, Table 1, by the paper",
    "fdse_pacs_small": "the same on a CPU: 64 pixels",
    "fedgala_pacs": "FedGaLA, section 5.1, no labels",
    "fedgala_pacs_small": "the same on a CPU: small ResNet",
    "pretrained_pacs": "ImageNet features, minutes on a CPU",
    "pretrained_office_caltech10": "ImageNet features, minutes on a CPU",
    "pretrained_folder": "ImageNet features, minutes on a CPU",
    "uap_rotated_mnist": "UAP, section 5, labelled server",
    "uap_rotated_mnist_small": "the same on a CPU: 15 rounds",
    "uap_pacs": "UAP, section 5, labelled server",
    "uap_vlcs": "UAP, section 5, labelled server",
    "uap_office_home": "UAP, section 5, labelled server",
    "uap_terra_incognita": "UAP, section 5, labelled server",
}
"""What each preset that is not merely a data set is for, in few words."""


def dataset_of(preset: str) -> str:
    """The data set of a preset."""
    return PRESETS.get(preset, {}).get("data", {}).get("name", preset)
