"""Data that come with the library or with scikit-learn: no file and no network is needed."""

from lawful.data.builtin.bundled import bundled
from lawful.data.builtin.catalogue import BUILTIN
from lawful.data.builtin.digits import digits
from lawful.data.builtin.mnist1d import mnist1d
from lawful.data.builtin.synthetic import moons, sine

__all__ = ["BUILTIN", "bundled", "digits", "mnist1d", "moons", "sine"]
