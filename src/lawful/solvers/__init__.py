"""Numerical methods, a method a file."""

from lawful.solvers.gauss_newton import gauss_newton
from lawful.solvers.levenberg_marquardt import levenberg_marquardt
from lawful.solvers.residuals import Minimum

__all__ = ["Minimum", "gauss_newton", "levenberg_marquardt"]
