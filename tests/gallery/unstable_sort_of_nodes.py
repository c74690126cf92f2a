"""An unstable sort of the nodes separates their features from their edges (GraphGPS#40)."""

import torch
from torch import Tensor, nn

from lawful import shape, tokens
from lawful.laws import node_permutation_invariance

law = node_permutation_invariance()
inputs = (shape("3 8"), tokens("2 e", vocab_size=3))
max_sizes = {"e": 1}


class Fixed(nn.Module):
    """Adds a token for the graph, sorts nodes and token by their graph, and attends with a bias for every edge."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        nodes = torch.cat([x, self.token[None]])
        graphs = torch.zeros(len(nodes), dtype=torch.long, device=x.device)
        nodes = nodes[self.order(graphs)]
        bias = torch.zeros(len(nodes), len(nodes), dtype=x.dtype, device=x.device)
        scores = nodes @ nodes.mT + bias.index_put(tuple(edge_index), self.bias)
        return (scores.softmax(-1) @ nodes).mean(0)

    def order(self, graphs: Tensor) -> Tensor:
        return graphs.argsort(stable=True)


class Broken(Fixed):
    """Sorts without `stable=True`: nodes of the same graph come in any order, here reversed as a GPU may do."""

    def order(self, graphs: Tensor) -> Tensor:
        return len(graphs) - 1 - graphs.flip(0).argsort(stable=True)
