"""What needs PyTorch, and is collected only where it is installed: the stored numbers, and a round of the twin."""

import torch

from benchmarks import torch_models, torch_round
from benchmarks.jobs import Job
from tests.conformance import check
from tests.conformance.make_torch_numbers import numbers


def test_the_stored_numbers_are_pytorchs() -> None:
    for name, made in numbers().items():
        check(name, made, rtol=1e-8, atol=1e-10)


def test_a_torch_round_of_a_network_with_batchnorm() -> None:
    """Its statistics are averaged; the count of batches, an integer, is left alone."""
    job = Job("torch", clients=2, batch_size=2, steps=1, rounds=1, image_size=8)
    device = torch.device("cpu")
    network = torch_models.ResNet18(7, 8, width=4)
    before = torch_round.copy(network)
    after, loss = torch_round.one_round(network, before, torch_round.random_data(job, device), job, device)
    assert torch.isfinite(loss)
    for name, value in after.items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name]) == name.endswith("num_batches_tracked"), name
