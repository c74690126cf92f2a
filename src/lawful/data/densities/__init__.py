"""Densities known by a formula, with their scores under any noise: oracles for what samples and scores."""

from lawful.data.densities.boxes import Boxes, checkerboard
from lawful.data.densities.density import Density
from lawful.data.densities.mixture import Gaussian, Mixture
from lawful.data.densities.planar import grid, ring, two_moons

__all__ = ["Boxes", "Density", "Gaussian", "Mixture", "checkerboard", "grid", "ring", "two_moons"]
