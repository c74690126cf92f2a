"""Pure maps on tensors."""

from lawful.functions.softmax import softmax

__all__ = ["softmax"]
