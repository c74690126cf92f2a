"""Small models to take apart."""

import torch
from torch.nn.functional import one_hot

from lawful.probe import induction_model, record


def test_the_residual_stream_of_the_induction_model_is_one_hot():
    """Its subspaces are the token, the previous token, the prediction and the position."""
    model, tokens = induction_model(vocab_size=5, context_length=6), torch.tensor([[3, 1, 4, 3, 1]])
    with record(model, "layers.0.input", "layers.0", "layers.1") as cache:
        model(tokens)
    sizes = 5, 5, 5, 6
    empty, position = torch.zeros(1, 5, 5), one_hot(torch.arange(5), 6)[None]
    token = one_hot(tokens, 5)
    start, middle, end = (cache[name].split(sizes, -1) for name in ("layers.0.input", "layers.0", "layers.1"))
    for found, expected in zip(start, (token, empty, empty, position), strict=True):
        torch.testing.assert_close(found, expected.float())
    torch.testing.assert_close(middle[1][:, 1:], token[:, :-1].float())
    torch.testing.assert_close(end[2][:, 3:], one_hot(torch.tensor([[1, 4]]), 5).float())
