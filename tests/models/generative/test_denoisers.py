"""Networks that are told of a noise level."""

import pytest
import torch

from lawful.models.generative.denoisers import (
    ConditionalNetwork,
    PatchTransformer,
    PatchTransformerConfig,
    TimeMLP,
    TimeMLPConfig,
    UNet,
    UNetConfig,
)

NETWORKS = {
    "mlp": lambda shape: TimeMLP(TimeMLPConfig(shape=shape, width=8, depth=1, classes=3)),
    "unet": lambda shape: UNet(UNetConfig(shape=shape, width=8, heads=1, classes=3)),
    "transformer": lambda shape: PatchTransformer(
        PatchTransformerConfig(shape=shape, width=8, depth=1, heads=2, classes=3)
    ),
}


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 6)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_all_parameters_learn_and_labels_matter(name, shape):
    torch.manual_seed(0)
    network = NETWORKS[name](shape)
    assert isinstance(network, ConditionalNetwork)
    x, c, labels = torch.randn(4, *shape), torch.randn(4), torch.tensor([0, 1, 2, 3])
    assert torch.equal(network(x, c), torch.zeros_like(x))
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.3)
    y = network(x, c, labels)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    assert not torch.allclose(y[0], network(x, c)[0])
    assert not torch.allclose(y, network(x, c + 1, labels))
    torch.testing.assert_close(y[3], network(x, c)[3])


def test_odd_sizes_and_depths_of_unets():
    network = UNet(UNetConfig(shape=(3, 5, 7), width=4, multiples=(1, 2, 3), depth=2, heads=0))
    assert network(torch.zeros(1, 3, 5, 7), torch.zeros(1)).shape == (1, 3, 5, 7)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: UNet(UNetConfig(shape=(3,))),
        lambda: UNet(UNetConfig(shape=(1, 4), multiples=())),
        lambda: TimeMLP(TimeMLPConfig(shape=())),
        lambda: PatchTransformer(PatchTransformerConfig(shape=(1, 5, 5))),
        lambda: PatchTransformer(PatchTransformerConfig(shape=(1, 4), width=4))(torch.zeros(1, 1, 6), torch.zeros(1)),
    ],
)
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        wrong()
