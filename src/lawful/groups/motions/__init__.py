"""Motions: translations, scalings, and rotations with translations."""
