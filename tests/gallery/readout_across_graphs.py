"""The readout of a graph depends on the graphs batched with it, and on their order (pytorch_geometric#57)."""

import torch
from torch import Tensor, nn

from lawful import shape
from lawful.laws import batch_independence

law = batch_independence(batch=0)
inputs = shape("b n 8")
max_sizes = {"b": 2, "n": 2}


class Fixed(nn.Module):
    """Sums gated node features over each graph; the nodes of all graphs lie in one long list."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 1)
        self.value = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        nodes = x.reshape(b * n, d)
        gated = self.gate(nodes).sigmoid() * self.value(nodes)
        return x.new_zeros(b, d).index_add(0, self.graph_of_node(torch.arange(b, device=x.device), n), gated)

    def graph_of_node(self, graphs: Tensor, n: int) -> Tensor:
        """Numbers the nodes by their graph: 0 0 1 1 for two graphs of two nodes."""
        return graphs.repeat_interleave(n)


class Broken(Fixed):
    """Numbers them 0 1 0 1, which is right only for one graph or for graphs of one node."""

    def graph_of_node(self, graphs: Tensor, n: int) -> Tensor:
        return graphs.repeat(n)
