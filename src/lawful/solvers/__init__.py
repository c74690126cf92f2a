"""Numerical methods: ordinary differential equations, nonlinear least squares, diffusion."""

from lawful.solvers.least_squares import LeastSquaresResult, Residual, SupportsExp, gauss_newton, levenberg_marquardt
from lawful.solvers.ode import (
    BOGACKI_SHAMPINE,
    DORMAND_PRINCE,
    EULER,
    HEUN,
    MIDPOINT,
    RK4,
    TABLEAUS,
    ODESolution,
    RateFunction,
    Tableau,
    odeint,
    odeint_adaptive,
    odeint_fixed,
)

__all__ = [
    "BOGACKI_SHAMPINE",
    "DORMAND_PRINCE",
    "EULER",
    "HEUN",
    "MIDPOINT",
    "RK4",
    "TABLEAUS",
    "LeastSquaresResult",
    "ODESolution",
    "RateFunction",
    "Residual",
    "SupportsExp",
    "Tableau",
    "gauss_newton",
    "levenberg_marquardt",
    "odeint",
    "odeint_adaptive",
    "odeint_fixed",
]
