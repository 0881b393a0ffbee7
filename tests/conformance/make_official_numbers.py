"""Makes official_numbers.npz, beside this file: what the official code of methods makes of random inputs, in float64.

Made with PyTorch 2.13.0 for CPUs and NumPy 2, from clones in one folder of debcaldarola/fedsam (64bbf93),
MediaBrain-SJTU/FedLESAM (d6663cc), cnyanhao/FedLGF (531ca86) and inouye-lab/FedDG_Benchmark (da58f76), by

    pip install -c constraints.txt -e '.[test]' && pip install torch==2.13.0
    python -m tests.conformance.make_official_numbers FOLDER
"""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from torch import nn

from tests.conformance import OFFICIAL

STUBS = ("torchvision", "torchvision.models", "torchvision.models.resnet", "wandb", "tqdm", "tqdm.auto")
RHO, ETA = 0.3, 0.2
Arrays = dict[str, np.ndarray]


def loaded(path: Path, name: str = "official") -> ModuleType:
    """A file of official code as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network(rng: np.random.Generator) -> nn.Sequential:
    """5 inputs, 4 hidden units, 3 classes; kernels and biases are random."""
    layers = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    for leaf in layers.parameters():
        leaf.data = torch.from_numpy(rng.normal(size=leaf.shape))
    return layers


def named(leaves: Mapping[str, torch.Tensor], suffix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Arrays by our names, kernels `[in, out]`."""
    for name, leaf in leaves.items():
        layer, kind = {"0": "first", "2": "last"}[name[0]], {"weight": "kernel", "bias": "bias"}[name[2:]]
        yield f"{layer}_{kind}{suffix}", leaf.detach().numpy().T.copy()


def sharpness(folder: Path) -> Arrays:
    """Gradients of a cross-entropy near the parameters, by the minimisers of FedSAM, FedASAM and FedLESAM."""
    rng = np.random.default_rng(0)
    layers, x, y = network(rng), torch.from_numpy(rng.normal(size=(6, 5))), torch.tensor([0, 2, 1, 1, 0, 2])
    back = {name: torch.from_numpy(rng.normal(size=leaf.shape)) for name, leaf in layers.named_parameters()}
    found: Arrays = {"x": x.numpy(), "y": y.numpy(), "rho": np.array(RHO), "eta": np.array(ETA)}
    found |= dict(named(dict(layers.named_parameters()))) | dict(named(back, "_back"))

    def gradients(kind: str) -> None:
        leaves = {name: leaf.grad for name, leaf in layers.named_parameters() if leaf.grad is not None}
        found.update(named(leaves, f"_{kind}"))
        layers.zero_grad()

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels)

    minimizers = loaded(folder / "fedsam" / "models" / "clients" / "minimizers.py")
    still = SimpleNamespace(zero_grad=layers.zero_grad, step=lambda: None)
    for kind, minimizer in (("sam", minimizers.SAM), ("asam_weights", minimizers.ASAM)):
        two_steps = minimizer(still, layers, RHO, ETA)
        loss(layers(x), y).backward()
        two_steps.ascent_step()
        loss(layers(x), y).backward()
        still.zero_grad = lambda: None  # the last thing a descent does
        two_steps.descent_step()
        still.zero_grad = layers.zero_grad
        gradients(kind)
    lesam = loaded(folder / "FedLESAM" / "optimizer" / "LESAM.py").LESAM
    optimizer = lesam(layers.parameters(), torch.optim.SGD(layers.parameters(), lr=0.1), rho=RHO)
    optimizer.paras = [x, y, loss, layers]
    optimizer.step([-leaf for leaf in back.values()])
    gradients("lesam_leaves")
    return found


def flatness(folder: Path) -> Arrays:
    """Logits of a head that FedLGF perturbs, in both ways, so that they differ most from those of another head."""
    rng = np.random.default_rng(1)
    head = nn.Sequential(nn.Linear(5, 3)).double()
    for leaf in head.parameters():
        leaf.data = torch.from_numpy(rng.normal(size=leaf.shape))
    features, logits = (torch.from_numpy(rng.normal(size=(6, size))) for size in (5, 3))
    with patch.dict(sys.modules, {name: MagicMock() for name in STUBS}):
        perturb = loaded(folder / "FedLGF" / "domainbed" / "networks.py").AdversarialPertubation
    found: Arrays = {"features": features.numpy(), "logits": logits.numpy()}
    found |= {"kernel": head[0].weight.detach().numpy().T.copy(), "bias": head[0].bias.detach().numpy()}
    for kind, shape, probe, radius in (("weight", (3, 5), 0.5, 0.3), ("singular", (3,), 2.0, 1.5)):
        way = rng.normal(size=shape)
        hparams = {"perturb_dist": "normal", "perturb_init_scale": probe, "perturb_grad_scale": radius}
        at_work = getattr(perturb(head, "cpu", hparams), f"{kind}_perturb_predict")
        with patch.object(torch, "randn", lambda shape, way=way: torch.from_numpy(way)):
            worst = at_work(features, logits).numpy()
        found |= {f"{kind}_way": way.T.copy(), f"{kind}_strengths": np.array([probe, radius]), f"{kind}_logits": worst}
    return found


def mixtures(folder: Path) -> Arrays:
    """FedDG_Benchmark's mixture weights over rounds, for clients of given losses."""
    rng, source = np.random.default_rng(2), folder / "FedDG_Benchmark" / "src"
    stubs = {f"src.{name}": ModuleType(name) for name in ("models", "client", "dataset_bundle")}
    package = ModuleType("src")
    package.__path__ = [str(source)]
    bar = MagicMock(tqdm=lambda clients, leave=True: clients)
    everything = {name: MagicMock() for name in STUBS} | stubs | {"src": package, "tqdm": bar, "tqdm.auto": bar}
    with patch.dict(sys.modules, everything):
        server = loaded(source / "server.py", "src.server").AFLServer
        losses, counts = rng.uniform(0, 3, (5, 4)), torch.tensor([5.0, 1.0, 9.0, 4.0])
        me = MagicMock(group_weights=torch.full((4,), 0.25), hparam={"hparam1": 0.2, "local_epochs": 1}, _round=0)
        after = []
        for now in torch.from_numpy(losses).float():
            me.clients = [
                SimpleNamespace(gradient_lambda=lambda place=place, now=now: (place * now * counts, place * counts))
                for place in torch.eye(4)
            ]
            server.update_lambda(me, range(4))
            after.append(me.group_weights.numpy().copy())
    return {"losses": losses, "rate": np.array(0.2), "mixtures": np.stack(after)}


def numbers(folder: Path) -> dict[str, Arrays]:
    """Everything that is stored, by what it is of."""
    return {"sharpness": sharpness(folder), "flatness": flatness(folder), "afl": mixtures(folder)}


if __name__ == "__main__":
    made = numbers(Path(sys.argv[1]))
    arrays: dict[str, Any] = {f"{name}/{path}": x for name, group in made.items() for path, x in group.items()}
    np.savez_compressed(OFFICIAL, **arrays)
