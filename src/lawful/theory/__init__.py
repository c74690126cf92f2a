"""Theorems that compute: networks from constructions, counts and bounds with certificates."""

__all__: list[str] = []
