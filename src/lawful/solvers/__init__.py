"""Numerical methods, a method a file."""

from lawful.solvers.least_squares import Minimum, gauss_newton, levenberg_marquardt

__all__ = ["Minimum", "gauss_newton", "levenberg_marquardt"]
