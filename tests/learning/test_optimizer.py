"""The fused Adam equals torch's Adam and is faster."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
Adam = pytest.importorskip("steersman.training.optimizer").Adam

TRAINED = """
import sys
import torch
from steersman.training.optimizer import Adam
layer = torch.nn.Linear(3, 2)
adam = Adam(layer.parameters(), lr=1e-3)
for _ in range(2):
    adam.zero_grad()
    layer(torch.ones(4, 3)).sum().backward()
    adam.step()
adam.load_state_dict(adam.state_dict())
print("torch._dynamo" in sys.modules)
"""


def trained(optimizer):
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(5, 3, generator=generator, dtype=torch.float64))
    adam = optimizer([weights])
    for _ in range(20):
        adam.zero_grad()
        ((weights @ torch.randn(3, generator=generator, dtype=torch.float64)) ** 2).sum().backward()
        adam.step()
    return weights.detach().numpy(), adam.state_dict()


def test_it_goes_where_torchs_own_goes():
    ours, kept = trained(lambda parameters: Adam(parameters, lr=0.1, eps=1e-5))
    theirs, theirs_kept = trained(
        lambda parameters: torch.optim.Adam(parameters, lr=0.1, eps=1e-5, foreach=False)
    )
    assert ours == pytest.approx(theirs, rel=1e-12)
    assert kept["state"].keys() == theirs_kept["state"].keys()
    for name, value in theirs_kept["state"][0].items():
        assert kept["state"][0][name].numpy() == pytest.approx(value.numpy(), rel=1e-12), name


@pytest.mark.slow
def test_the_compiler_stays_unread():
    asked = [sys.executable, "-c", TRAINED]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert said == "False\n"
