"""Circuits: what a head looks for, what it moves, and which heads read what others wrote."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.laws import Claim, agreement, boundedness, shape
from lawful.probe.factored import Factored


def through_tokens(
    circuit: Factored, into: Float[Tensor, "vocab d"], out: Float[Tensor, "vocab d"] | None = None
) -> Factored:
    r"""Sees a circuit of a head from token to token, through the embedding and the unembedding.

    $$W_E^\top M_{QK} W_E \qquad \text{or} \qquad W_U M_{OV} W_E$$

    Of a QK circuit, entry $(i, j)$ is how much token $i$ wants to look at token $j$; of an OV circuit, how much the
    logit of $i$ rises where $j$ is looked at. Norms, and positions, are left out.

    Args:
        circuit: $M$, such as `attention.qk(head)` or `attention.ov(head)` by their factors.
        into: $W_E$, a row for each token, by which the right side is read.
        out: The rows by which the left side is read: $W_U$ for OV; those of `into` unless given.

    Examples:
        >>> one = torch.eye(3)
        >>> through_tokens(Factored(one, one), 2 * one, one).matrix.diagonal()
        tensor([2., 2., 2.])
    """
    return Factored((into if out is None else out) @ circuit.left, circuit.right @ into.mT)


def copying(circuit: Factored) -> Float[Tensor, ""]:
    r"""Scores how far an OV circuit from tokens to tokens copies: 1 where all eigenvalues are positive.

    $$\frac{\sum_i \lambda_i}{\sum_i |\lambda_i|}$$

    A positive eigenvalue is a mix of tokens that raises its own logits; -1 is a head that lowers what it looks at.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        circuit: The OV circuit, of `through_tokens`.

    Examples:
        >>> copying(Factored(torch.eye(2), torch.diag(torch.tensor([3.0, -1.0]))))
        tensor(0.5000)
    """
    values = circuit.eigenvalues()
    return values.real.sum() / values.abs().sum()


def composition(reader: Factored, writer: Factored) -> Float[Tensor, ""]:
    r"""Scores how much of what one matrix writes another reads.

    $$\frac{\lVert A B \rVert_F}{\lVert A \rVert_F \, \lVert B \rVert_F}$$

    For random matrices of width $d$ it is near $1 / \sqrt{d}$; it is 0 where $A$ reads nothing that $B$ writes.

    Reference:
        Elhage et al., *A Mathematical Framework for Transformer Circuits*, 2021.

    Args:
        reader: $A$.
        writer: $B$.

    Examples:
        >>> one = torch.eye(4)
        >>> composition(Factored(one, one), Factored(one, one))
        tensor(0.5000)
    """
    return (reader @ writer).norm() / (reader.norm() * writer.norm())


def q_composition(qk: Factored, ov: Factored) -> Float[Tensor, ""]:
    r"""Scores how much of what a head writes a later head reads for its queries: $M_{QK}^\top$ after $M_{OV}$.

    Args:
        qk: The QK circuit of the later head: queries on the left, keys on the right.
        ov: The OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> qk = Factored(e[:, :1], e[1:])  # queries are read from the first direction, keys from the second
        >>> q_composition(qk, Factored(e[:, :1], e[:1])), q_composition(qk, Factored(e[:, 1:], e[:1]))
        (tensor(1.), tensor(0.))
    """
    return composition(qk.transposed, ov)


def k_composition(qk: Factored, ov: Factored) -> Float[Tensor, ""]:
    r"""Scores how much of what a head writes a later head reads for its keys: $M_{QK}$ after $M_{OV}$.

    Args:
        qk: The QK circuit of the later head: queries on the left, keys on the right.
        ov: The OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> qk = Factored(e[:, :1], e[1:])  # queries are read from the first direction, keys from the second
        >>> k_composition(qk, Factored(e[:, :1], e[:1])), k_composition(qk, Factored(e[:, 1:], e[:1]))
        (tensor(0.), tensor(1.))
    """
    return composition(qk, ov)


def v_composition(later: Factored, earlier: Factored) -> Float[Tensor, ""]:
    r"""Scores how much of what a head writes a later head moves on: one $M_{OV}$ after another.

    Args:
        later: The OV circuit of the later head.
        earlier: The OV circuit of the earlier head.

    Examples:
        >>> e = torch.eye(2)
        >>> v_composition(Factored(e[:, :1], e[1:]), Factored(e[:, 1:], e[:1]))
        tensor(1.)
    """
    return composition(later, earlier)


def claims() -> Iterator[Claim]:
    """The laws that circuits obey."""
    head, four = (shape("4 2"), shape("2 4")), (shape("4 2"), shape("2 4"), shape("4 2"), shape("2 4"))

    def scores(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        one, other = Factored(a, b), Factored(c, d)
        return torch.stack([score(one, other) for score in (q_composition, k_composition, v_composition)])

    def written(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        products = (b.mT @ a.mT @ c @ d, a @ b @ c @ d, a @ b @ c @ d)
        size = (a @ b).square().sum().sqrt() * (c @ d).square().sum().sqrt()
        return torch.stack([p.square().sum().sqrt() / size for p in products])

    def token_to_token(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.linspace(-1, 2, 20).to(a).view(5, 4)
        return through_tokens(Factored(a, b), table, 2 - table).matrix, through_tokens(Factored(a, b), table).matrix

    def by_hand(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.linspace(-1, 2, 20).to(a).view(5, 4)
        return (2 - table) @ a @ b @ table.mT, table @ a @ b @ table.mT

    def copies(a: Tensor, b: Tensor) -> Tensor:
        return copying(Factored(a, b))

    def of_a_square(a: Tensor) -> Tensor:
        """A symmetric matrix without negative eigenvalues, and its opposite."""
        return torch.stack([copying(Factored(a, a.mT)), copying(Factored(-a, a.mT))])

    ones = agreement(other=lambda a: a.new_tensor([1.0, -1.0]))
    yield Claim(agreement(other=by_hand), token_to_token, head, name="from token to token")
    yield Claim(agreement(other=written).except_near(_smallest), scores, four, name="composition scores")
    yield Claim(boundedness(low=0.0, high=1.0, input=(0, 1, 2, 3)).except_near(_smallest), scores, four, name="scores")
    yield Claim(boundedness(low=-1.0, high=1.0).except_near(_smallest), copies, head, name="copying")
    yield Claim(ones.except_near(_smallest), of_a_square, shape("4 2"), name="copying, eigenvalues of one sign")


def _smallest(*xs: Tensor) -> Tensor:
    """How far the factors are from 0, where there is no score."""
    return torch.stack([x.norm() for x in xs]).min()
