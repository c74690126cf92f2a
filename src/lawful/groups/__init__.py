"""Groups: elements as plain tensors, their composition, action, exponential and logarithm, a group a file."""

from lawful.groups.actions import Symmetry, under
from lawful.groups.discrete.cyclic import Cyclic
from lawful.groups.discrete.dihedral import Dihedral
from lawful.groups.discrete.permutation import Permutation
from lawful.groups.distances import left_invariance, rigidity, separation
from lawful.groups.group import Group, LieGroup, axioms, smooth_axioms
from lawful.groups.matrices import exp_mean
from lawful.groups.motions.euclidean import Euclidean
from lawful.groups.motions.scaling import Scaling
from lawful.groups.motions.se2 import SE2
from lawful.groups.motions.se3 import SE3
from lawful.groups.motions.translation import Translation
from lawful.groups.product import DirectProduct
from lawful.groups.rotations.circle import Circle, complex_to_matrix, matrix_to_complex
from lawful.groups.rotations.conversions import (
    axis_angle_to_matrix,
    axis_angle_to_quaternion,
    canonical,
    matrix_to_axis_angle,
    matrix_to_quaternion,
    quaternion_to_axis_angle,
    quaternion_to_matrix,
    skew,
)
from lawful.groups.rotations.euler import euler_to_matrix, euler_to_quaternion, matrix_to_euler, quaternion_to_euler
from lawful.groups.rotations.orthogonal import Orthogonal
from lawful.groups.rotations.quaternions import UnitQuaternions, quaternion_product
from lawful.groups.rotations.series import stumpff
from lawful.groups.rotations.so2 import SO2
from lawful.groups.rotations.so3 import SO3
from lawful.groups.rotations.su2 import SU2, complex_matrix_to_quaternion, quaternion_to_complex_matrix
from lawful.groups.rotations.turns import turn_mean, turn_mean_inverse

__all__ = [
    "SE2",
    "SE3",
    "SO2",
    "SO3",
    "SU2",
    "Circle",
    "Cyclic",
    "Dihedral",
    "DirectProduct",
    "Euclidean",
    "Group",
    "LieGroup",
    "Orthogonal",
    "Permutation",
    "Scaling",
    "Symmetry",
    "Translation",
    "UnitQuaternions",
    "axioms",
    "axis_angle_to_matrix",
    "axis_angle_to_quaternion",
    "canonical",
    "complex_matrix_to_quaternion",
    "complex_to_matrix",
    "euler_to_matrix",
    "euler_to_quaternion",
    "exp_mean",
    "left_invariance",
    "matrix_to_axis_angle",
    "matrix_to_complex",
    "matrix_to_euler",
    "matrix_to_quaternion",
    "quaternion_product",
    "quaternion_to_axis_angle",
    "quaternion_to_complex_matrix",
    "quaternion_to_euler",
    "quaternion_to_matrix",
    "rigidity",
    "separation",
    "skew",
    "smooth_axioms",
    "stumpff",
    "turn_mean",
    "turn_mean_inverse",
    "under",
]
