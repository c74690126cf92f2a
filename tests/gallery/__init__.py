"""Faults that were reported in public projects, each beside its corrected twin."""
