"""Molecules: atoms with positions, XYZ files, and random metal clusters with an analytic energy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from lawful.data._inputs import list_files, read_text
from lawful.data.batches import make_generator
from lawful.data.loading import resolve_path
from lawful.functions._validation import any_true


@dataclass(frozen=True, eq=False)
class Molecule:
    """Atoms with positions, and properties such as the energy.

    Examples:
        >>> water = Molecule(("O", "H", "H"), torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.8, -0.5], [0.0, -0.8, -0.5]]))
        >>> water
        Molecule(H2O)
    """

    elements: tuple[str, ...]
    """Element of each atom."""
    positions: Float[Tensor, "n 3"]
    """Position of each atom."""
    properties: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the whole molecule by name."""
    name: str = ""
    """File, and frame if the file has several."""

    def __post_init__(self) -> None:
        if not self.elements:
            raise ValueError("a molecule needs at least one atom, got none")
        if self.positions.shape != (len(self.elements), 3):
            raise ValueError(
                f"expected positions of shape ({len(self.elements)}, 3), got {tuple(self.positions.shape)}"
            )
        if any_true(~self.positions.isfinite()):
            raise ValueError(f"positions must be finite, got NaN or infinity{f' in {self.name}' * bool(self.name)}")

    def __repr__(self) -> str:
        counts = sorted(Counter(self.elements).items())
        return f"Molecule({''.join(name + (str(n) if n > 1 else '') for name, n in counts)})"

    def __len__(self) -> int:
        return len(self.elements)


# ---------------------------------------------------------------- XYZ files

_PAIR = re.compile(r"""([A-Za-z_][\w.\-]*)\s*[=:]\s*("[^"]*"|'[^']*'|[^\s,;]+)""")
"""A property in the comment line, such as energy=-1.5 or E: -1.5."""
_SUFFIXES = (".xyz", ".extxyz")
_MEMORY_FACTOR = 15
"""Memory for reading a file, relative to its size."""


def read_xyz(path: str | Path) -> tuple[list[Molecule], tuple[str, ...]]:
    r"""Reads XYZ and extended XYZ files: one file with one or several molecules, or a folder of files.

    A molecule has a line with the number of atoms, a comment, and a line with element and coordinates for each atom.
    The comment has properties such as `energy=-1.5`. A single number is the energy; several numbers without names are
    the properties "1", "2" and so on, by their place. Periodic boundaries are ignored.

    Args:
        path: File or folder.

    Returns:
        Molecules, and notes for the user.

    Raises:
        ValueError: If a file is not an XYZ file. The message names the line.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> file = Path(folder.name) / "h2.xyz"
        >>> _ = file.write_text("2\nenergy=-1.17\nH 0 0 0\nH 0 0 0.74\n")
        >>> molecules, notes = read_xyz(file)
        >>> molecules[0].properties
        {'energy': -1.17}
        >>> folder.cleanup()
    """
    path = resolve_path(path)
    files = [path]
    if path.is_dir():
        files = list_files(path, suffixes=_SUFFIXES)
        if not files:
            raise ValueError(f"{path} has no .xyz files")
    molecules: list[Molecule] = []
    periodic = 0
    for file in files:
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        lines = read_text(file, encoding="utf-8-sig", memory_factor=_MEMORY_FACTOR).splitlines()
        found = list(_read_frames(lines, name))
        periodic += sum(is_periodic for _, is_periodic in found)
        frames = [molecule for molecule, _ in found]
        if len(frames) > 1:
            frames = [Molecule(m.elements, m.positions, m.properties, f"{name}:{k}") for k, m in enumerate(frames)]
        molecules += frames
    notes = (f"periodic boundaries of {periodic} molecules are ignored",) if periodic else ()
    return molecules, notes


def _read_frames(lines: Sequence[str], name: str) -> Iterator[tuple[Molecule, bool]]:
    """Yields the molecules of a file, and whether they are periodic."""
    start = 0
    while start < len(lines):
        if not lines[start].strip():
            start += 1
            continue
        head = lines[start].split()
        if len(head) != 1 or not head[0].isdigit() or not int(head[0]):
            raise ValueError(f"line {start + 1} of {name}: expected the number of atoms, got {lines[start][:50]!r}")
        count = int(head[0])
        rows = lines[start + 2 : start + 2 + count]
        if len(rows) < count:
            raise ValueError(f"{name} ends after {len(rows)} of {count} atoms of the molecule in line {start + 1}")
        comment = lines[start + 1]
        pairs = {key: value.strip("\"'") for key, value in _PAIR.findall(comment)}
        element, place = _columns(pairs.get("Properties", ""), f"line {start + 2} of {name}")
        atoms = [_read_atom(row, element, place, f"line {start + 3 + k} of {name}") for k, row in enumerate(rows)]
        positions = torch.tensor([xyz for _, xyz in atoms], dtype=torch.float64)
        periodic = "Lattice" in pairs and "T" in pairs.get("pbc", "T T T").upper()
        yield Molecule(tuple(e for e, _ in atoms), positions, _properties(comment, pairs), name), periodic
        start += 2 + count


def _columns(properties: str, line: str) -> tuple[int, int]:
    """Returns the columns of the element and of the first coordinate, from the key Properties of extended XYZ."""
    if not properties:
        return 0, 1
    parts, column, found = properties.split(":"), 0, {}
    for key, width in zip(parts[::3], parts[2::3], strict=False):
        found[key] = column
        column += int(width) if width.isdigit() else 1
    if "species" not in found or "pos" not in found:
        raise ValueError(f"{line}: Properties needs species and pos, got {properties[:80]!r}")
    return found["species"], found["pos"]


def _read_atom(row: str, element: int, place: int, line: str) -> tuple[str, list[float]]:
    """Returns the element and the coordinates of an atom."""
    words = row.replace(",", " ").split()
    numbers = [_number(word) for word in words[place : place + 3]]
    if len(words) <= element or len(numbers) < 3 or any(number is None for number in numbers):
        raise ValueError(f"{line}: expected an element and three coordinates, got {row.strip()[:60]!r}")
    xyz = [math.nan if number is None else number for number in numbers]
    if not all(map(math.isfinite, xyz)):
        raise ValueError(f"{line}: expected finite coordinates, got {row.strip()[:60]!r}")
    name = words[element]
    return name[:1].upper() + name[1:].lower() if name.isalpha() else name, xyz


def _number(word: str) -> float | None:
    """Parses a number; 1.5*^-3 of Mathematica is 1.5e-3."""
    try:
        return None if "_" in word else float(word.replace("*^", "e"))
    except ValueError:
        return None


def _properties(comment: str, pairs: Mapping[str, str]) -> dict[str, float]:
    """Returns the finite numbers of a comment line by name."""
    numbers = {key: _number(value) for key, value in pairs.items()}
    if not pairs:
        words = comment.split()
        numbers = {str(place): _number(word) for place, word in enumerate(words, 1)}
        if sum(number is not None for number in numbers.values()) == 1:
            numbers = {"energy": next(number for number in numbers.values() if number is not None)}
    return {key: value for key, value in numbers.items() if value is not None and math.isfinite(value)}


# ---------------------------------------------------------------- metal clusters

_GUPTA = {"Cu": (0.0855, 1.224, 10.960, 2.278, 2.556), "Ag": (0.1028, 1.178, 10.928, 3.139, 2.889)}
"""Parameters A, xi in eV, p, q, and r0 in angstrom, of copper and silver."""


def gupta_energy(elements: Sequence[str], positions: Float[Tensor, "n 3"]) -> float:
    r"""Returns the energy of a cluster of copper and silver in the Gupta potential, in eV.

    $$E = \sum_i \Bigl[ \sum_{j \ne i} A \, e^{-p (r_{ij} / r_0 - 1)} -
    \sqrt{\sum_{j \ne i} \xi^2 e^{-2 q (r_{ij} / r_0 - 1)}} \, \Bigr]$$

    The parameters of a pair are the means of its elements, geometric for $A$ and $\xi$. The square root makes the
    energy more than a sum over pairs.

    Reference:
        Cleri and Rosato, *Tight-Binding Potentials for Transition Metals and Alloys*, 1993.

    Args:
        elements: "Cu" or "Ag" for each atom.
        positions: Positions in angstrom.

    Examples:
        >>> dimer = torch.tensor([[0.0, 0.0, 0.0], [2.5, 0.0, 0.0]])
        >>> round(gupta_energy(("Cu", "Cu"), dimer), 2)
        -2.36
    """
    if strange := [name for name in elements if name not in _GUPTA]:
        raise ValueError(f"expected the elements {', '.join(_GUPTA)}, got {strange[0]}")
    own = torch.tensor([_GUPTA[name] for name in elements], dtype=torch.float64).T
    arithmetic, geometric = (own[:, :, None] + own[:, None]) / 2, (own[:, :, None] * own[:, None]).sqrt()
    a, xi, p, q, r0 = geometric[0], geometric[1], arithmetic[2], arithmetic[3], arithmetic[4]
    apart = torch.cdist(positions.double(), positions.double()) / r0 - 1
    pairs = 1 - torch.eye(len(elements), dtype=torch.float64)
    repulsion = (a * (-p * apart).exp() * pairs).sum()
    bonding = (xi.square() * (-2 * q * apart).exp() * pairs).sum(1).sqrt().sum()
    return float(repulsion - bonding)


def metal_clusters(num_molecules: int, *, max_atoms: int = 8, seed: int = 0) -> list[Molecule]:
    """Draws random clusters of copper and silver, with the energy of `gupta_energy`.

    Each atom is placed near a random earlier one, at 0.9 to 1.3 times the distance of neighbors in the metal.

    Args:
        num_molecules: Number of clusters.
        max_atoms: Largest number of atoms, at least 3. The smallest is 3.
        seed: Random seed.

    Examples:
        >>> [len(cluster) for cluster in metal_clusters(3, max_atoms=3)]
        [3, 3, 3]
    """
    for name, value, least in (("num_molecules", num_molecules, 1), ("max_atoms", max_atoms, 3)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    generator, found = make_generator(seed), []
    names = tuple(_GUPTA)
    for k in range(num_molecules):
        count = int(torch.randint(3, max_atoms + 1, (), generator=generator))
        elements = tuple(names[i] for i in torch.randint(2, (count,), generator=generator).tolist())
        positions = torch.zeros(1, 3, dtype=torch.float64)
        while len(positions) < count:
            near = int(torch.randint(len(positions), (), generator=generator))
            direction = torch.randn(3, generator=generator, dtype=torch.float64)
            distance = 2.7 * (0.9 + 0.4 * torch.rand((), generator=generator, dtype=torch.float64))
            new = positions[near] + distance * direction / direction.norm()
            if float((positions - new).norm(dim=1).min()) > 2.7 * 0.85:
                positions = torch.cat([positions, new[None]])
        energy = gupta_energy(elements, positions)
        found.append(Molecule(elements, positions, {"energy": energy}, f"cluster {k}"))
    return found
