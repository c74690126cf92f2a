"""Ordinary differential equations: methods as tableaus, equal steps, adaptive steps."""

from lawful.solvers.ode.adaptive import adaptive
from lawful.solvers.ode.fixed import integrate
from lawful.solvers.ode.states import Field, Solution, State
from lawful.solvers.ode.tableaus import (
    BOGACKI_SHAMPINE,
    DORMAND_PRINCE,
    EULER,
    HEUN,
    MIDPOINT,
    RK4,
    TABLEAUS,
    Tableau,
)

__all__ = [
    "BOGACKI_SHAMPINE",
    "DORMAND_PRINCE",
    "EULER",
    "HEUN",
    "MIDPOINT",
    "RK4",
    "TABLEAUS",
    "Field",
    "Solution",
    "State",
    "Tableau",
    "adaptive",
    "integrate",
]
