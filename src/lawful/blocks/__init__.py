"""Blocks: an idea a file, with the equation, the module, and the laws it claims."""

from lawful.blocks.rms_norm import RMSNorm

__all__ = ["RMSNorm"]
