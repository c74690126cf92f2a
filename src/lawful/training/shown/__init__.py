"""What a user sees of a run: the terminal, TensorBoard's files, the report."""
