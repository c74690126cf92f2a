"""The judge: inputs, search and shrinking, numerics, verdicts and reports."""
