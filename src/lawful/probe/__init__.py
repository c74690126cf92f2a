"""Looking inside a model, and figures of what is seen."""
