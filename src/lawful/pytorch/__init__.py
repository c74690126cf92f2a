"""The laws that PyTorch's own layers, functions, losses and optimizers satisfy.

Each module covers one family: its docstring has the equations, its `claims()` the laws. `lawful check lawful.pytorch`
checks all of them; `docs/pytorch-laws.md` shows them as a table.

| module | objects |
|---|---|
| `layers` | linear layers, embeddings, convolutions, pooling, dropout, attention, transformer layers |
| `normalization` | layer, RMS, batch, group and instance norm; weight and spectral norm |
| `recurrent` | RNN, GRU, LSTM and their cells |
| `activations` | pointwise activations, softmax, gated linear units |
| `losses` | classification, regression and divergence losses |
| `linalg` | `torch.linalg`: determinants, factorizations, solvers, norms |
| `initialization` | `torch.nn.init` |
| `optimizers` | `torch.optim`, learning-rate schedulers, gradient clipping |
"""
