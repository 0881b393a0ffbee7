"""UAP, Tables 2 and 16: SSFL and UAP on PACS, all 12 pairs of a server's and a test domain.

    fdgjax reproduce uap-pacs --out runs/uap-pacs --data_dir DATA --set model.pretrained=timm/resnet18.tv_in1k

The paper's ResNet-18 starts from ImageNet's weights (the name, or a file); without them the network is trained from
scratch.
Names: METHOD-SERVER-TEST.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, Scale
from fdgjax.sweeps.specs.hfedf_pacs import TARGETS
from fdgjax.sweeps.specs.uap_rotated_mnist import pairs
from fdgjax.utils.registry import lookup

SCALES = {
    "paper": Scale("uap_pacs"),
    "cpu": Scale(
        "uap_pacs",
        {
            "rounds": 10,
            "model": {"name": "resnet10", "width": 0.25},
            "data": {"image_size": 32},
            "method": {"client_optimizer": "adam", "client_learning_rate": 1e-3},
        },
        "ResNet-10 with a quarter of the channels from nothing instead of ImageNet's ResNet-18, 32 pixels instead of "
        "224, 10 rounds instead of 40, Adam 1e-3 instead of SGD 0.002",
    ),
}
PRETRAINED = "the paper's network starts from ImageNet's weights: --set model.pretrained=timm/resnet18.tv_in1k"


def cells(scale: str) -> Sequence[Cell]:
    """Every pair with both methods, side by side."""
    found = pairs(lookup("scale", scale, SCALES), TARGETS, PRETRAINED if scale == "paper" else "")
    return [cell._replace(pretrained=True) for cell in found]
