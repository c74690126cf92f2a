"""Targets for the tests of the command line, with every kind of failure."""

import os
import sys
import time

from torch import nn

from lawful.laws import Equal, Map, law


class Good(nn.Module):
    def forward(self, x):
        return x.cumsum(1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, token_ids):
        return self.output(self.embedding(token_ids))

    def forward_reference(self, token_ids):
        return self.embedding(token_ids) @ self.embedding.weight.T


class Leaks(nn.Module):
    def forward(self, x):
        return x.flip(1)


class Raises(nn.Module):
    def forward(self, x):
        if x.shape[1] > 3:
            raise RuntimeError("too long for me\nand a second line")
        return x


class ReturnsNone(nn.Module):
    def forward(self, x):
        return None


class ReturnsWords(nn.Module):
    def forward(self, x):
        return "no", [1.0, [2.0]]


class Ragged(nn.Module):
    def forward(self, x):
        return x[:, : len(x) if x.shape[1] > 3 else None]


class NotANumber(nn.Module):
    def forward(self, x):
        return x * float("nan")


class NeedsGPU(nn.Module):
    def forward(self, x):
        return x.to("cuda:7")


class Hangs(nn.Module):
    def forward(self, x):
        time.sleep(1000)


class Dies(nn.Module):
    def forward(self, x):
        os.abort()


class Exits(nn.Module):
    def forward(self, x):
        sys.exit(7)


class Talks(nn.Module):
    def forward(self, x):
        print("text on standard output")
        return x


class WantsArguments(nn.Module):
    def __init__(self, d):
        super().__init__()


class HasNoWeights(nn.Module):
    def __init__(self):
        raise OSError("no weights here")


def factory():
    return nn.Linear(4, 4)


def double(x):
    return 2 * x


instance = nn.Linear(4, 4)
number = 3


def convolve(x, adjacency):
    return adjacency @ x


@law("f(-x) = -f(x)")
def oddness(f: Map, x):
    return Equal(f(-x), -f(x))


@law("f(x) = f(x)")
def returns_a_bool(f: Map, x):
    return True


@law("f(x) = f(x)")
def raises_an_error(f: Map, x):
    raise KeyError("a mistake in the law")


@law("f(x) = f(x)")
def repeats_a_call(f: Map, x):
    return Equal(f(x), f(x))
