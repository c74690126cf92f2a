import math

import pytest
import torch

from lawful.data import Molecule, gupta_energy, metal_clusters, read_xyz

WATER = "3\nenergy=-76.4 charge=0\nO 0.0 0.0 0.1\nh 0.0 0.8 -0.5\nH 0.0 -0.8 -0.5\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="a.xyz"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return path

    return write


def test_a_file_with_several_molecules(write):
    molecules, notes = read_xyz(write(WATER + "\n" + "1\n-0.5\nH 1 2 3\n"))
    assert [m.elements for m in molecules] == [("O", "H", "H"), ("H",)]
    assert [m.properties for m in molecules] == [{"energy": -76.4, "charge": 0.0}, {"energy": -0.5}]
    assert [m.name for m in molecules] == ["a.xyz:0", "a.xyz:1"]
    torch.testing.assert_close(molecules[1].positions, torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64))
    assert (notes, repr(molecules[0]), len(molecules[0])) == ((), "Molecule(H2O)", 3)


def test_a_folder_of_files(write, tmp_path):
    write(WATER, "mols/b.xyz")
    write(WATER, "mols/a/c.XYZ")
    write("ignored", "mols/readme.txt")
    assert [m.name for m in read_xyz(tmp_path / "mols")[0]] == ["a/c.XYZ", "b.xyz"]
    with pytest.raises(ValueError, match=r"has no \.xyz files"):
        read_xyz(write("x", "empty/readme.txt").parent)


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("energy=-1.5", {"energy": -1.5}),
        ("E = -1.5 Ha; gap: 2e-1", {"E": -1.5, "gap": 0.2}),
        ("-1.5", {"energy": -1.5}),
        ("step 7", {"energy": 7.0}),
        ("gdb 1 157.7\t-1.5*^-1", {"2": 1.0, "3": 157.7, "4": -0.15}),
        ("energy=nan", {}),
        ("water", {}),
        ("", {}),
    ],
)
def test_properties_in_the_comment(write, comment, expected):
    assert read_xyz(write(f"1\n{comment}\nH 0 0 0\n"))[0][0].properties == expected


def test_columns_of_extended_xyz(write):
    text = '2\nLattice="9 0 0 0 9 0 0 0 9" Properties=pos:R:3:forces:R:3:species:S:1 energy=-3 pbc="T T F"\n'
    molecules, notes = read_xyz(write(text + "0 0 1 9 9 9 Cu\n0 0 -1 9 9 9 Ag\n"))
    assert molecules[0].elements == ("Cu", "Ag")
    assert molecules[0].positions[:, 2].tolist() == [1.0, -1.0]
    assert molecules[0].properties["energy"] == -3.0
    assert notes == ("periodic boundaries of 1 molecules are ignored",)
    assert read_xyz(write(text.replace("T T F", "F F F") + "0 0 1 9 9 9 Cu\n0 0 -1 9 9 9 Ag\n"))[1] == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H 0 0 0\n", r"line 1 of a\.xyz: expected the number of atoms, got 'H 0 0 0'"),
        ("0\n\n", r"line 1 of a\.xyz: expected the number of atoms, got '0'"),
        ("3\n\nH 0 0 0\n", r"a\.xyz ends after 1 of 3 atoms of the molecule in line 1"),
        ("1\n\nH 0 0\n", r"line 3 of a\.xyz: expected an element and three coordinates, got 'H 0 0'"),
        ("1\n\nH 0 0 x\n", r"line 3 of a\.xyz: expected an element and three coordinates"),
        ("1\n\nH 0 nan 0\n", r"line 3 of a\.xyz: expected finite coordinates, got 'H 0 nan 0'"),
        ("1\nProperties=id:I:1:pos:R:3\n1 0 0 0\n", r"line 2 of a\.xyz: Properties needs species and pos"),
    ],
)
def test_bad_files_raise(write, text, message):
    with pytest.raises(ValueError, match=message):
        read_xyz(write(text))


@pytest.mark.parametrize(
    ("elements", "positions", "message"),
    [
        ((), torch.zeros(0, 3), "at least one atom"),
        (("H",), torch.zeros(1, 2), r"expected positions of shape \(1, 3\), got \(1, 2\)"),
        (("H",), torch.full((1, 3), torch.nan), "positions must be finite"),
    ],
)
def test_bad_molecules_raise(elements, positions, message):
    with pytest.raises(ValueError, match=message):
        Molecule(elements, positions)


def test_gupta_energy_is_a_sum_with_loops():
    cluster = metal_clusters(5, seed=3)[4]
    parameters = {"Cu": (0.0855, 1.224, 10.960, 2.278, 2.556), "Ag": (0.1028, 1.178, 10.928, 3.139, 2.889)}
    expected = 0.0
    for i, a in enumerate(cluster.elements):
        repulsion = bonding = 0.0
        for j, b in enumerate(cluster.elements):
            if i != j:
                first, second = parameters[a], parameters[b]
                p, q, r0 = ((x + y) / 2 for x, y in zip(first[2:], second[2:], strict=True))
                r = math.dist(cluster.positions[i].tolist(), cluster.positions[j].tolist()) / r0 - 1
                repulsion += math.sqrt(first[0] * second[0]) * math.exp(-p * r)
                bonding += first[1] * second[1] * math.exp(-2 * q * r)
        expected += repulsion - math.sqrt(bonding)
    assert cluster.properties["energy"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="expected the elements Cu, Ag, got Au"):
        gupta_energy(("Au",), torch.zeros(1, 3))


def test_clusters():
    clusters = metal_clusters(50, max_atoms=6, seed=1)
    assert {len(c) for c in clusters} == {3, 4, 5, 6}
    assert all(float(torch.pdist(c.positions).min()) > 2.2 for c in clusters)
    for options, message in (((0, 8), "num_molecules must be at least 1"), ((3, 2), "max_atoms must be at least 3")):
        with pytest.raises(ValueError, match=message):
            metal_clusters(options[0], max_atoms=options[1])
