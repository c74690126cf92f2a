"""Groups: elements as plain tensors, their composition, action, exponential and logarithm, a group a file."""

from lawful.groups.euclidean import Euclidean, Scaling, Translation
from lawful.groups.finite import Cyclic, Dihedral, SymmetricGroup
from lawful.groups.group import Group, LieGroup, axioms, exp_mean, left_invariance, rigidity, separation, smooth_axioms
from lawful.groups.orthogonal import Orthogonal
from lawful.groups.product import DirectProduct
from lawful.groups.quaternions import (
    SU2,
    UnitQuaternions,
    complex_matrix_to_quaternion,
    quaternion_product,
    quaternion_to_complex_matrix,
)
from lawful.groups.rigid import SE2, SE3
from lawful.groups.so2 import SO2, Circle, complex_to_matrix, matrix_to_complex
from lawful.groups.so3 import (
    SO3,
    axis_angle_to_matrix,
    axis_angle_to_quaternion,
    canonical,
    euler_to_matrix,
    euler_to_quaternion,
    matrix_to_axis_angle,
    matrix_to_euler,
    matrix_to_quaternion,
    quaternion_to_axis_angle,
    quaternion_to_euler,
    quaternion_to_matrix,
    skew,
    stumpff,
    turn_mean,
    turn_mean_inverse,
)
from lawful.groups.symmetry import Symmetry, under

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
    "Scaling",
    "SymmetricGroup",
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
