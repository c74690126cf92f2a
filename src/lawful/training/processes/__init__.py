"""The processes that train together: one by itself, or many with the whole model or a share of it each."""
