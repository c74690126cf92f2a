"""Groups: elements as plain tensors, with composition, action, exponential, logarithm and uniform samples."""

from lawful.groups.distributions import Haar, VonMises, WrappedNormal
from lawful.groups.euclidean import Euclidean, Scaling, Translation
from lawful.groups.finite import Cyclic, Dihedral, SymmetricGroup
from lawful.groups.group import Group, LieGroup, adjoint_matrix, bracket_matrix, phi1
from lawful.groups.orthogonal import Orthogonal
from lawful.groups.product import DirectProduct
from lawful.groups.quaternions import (
    SU2,
    UnitQuaternions,
    complex_matrix_to_quaternion,
    quaternion_to_complex_matrix,
)
from lawful.groups.rigid import (
    SE2,
    SE3,
    homogeneous_matrix,
    rigid_act,
    rigid_inverse,
    rotation_and_translation,
)
from lawful.groups.rotation_conversions import (
    axis_angle_to_matrix,
    axis_angle_to_quaternion,
    canonical_quaternion,
    euler_to_matrix,
    euler_to_quaternion,
    matrix_to_axis_angle,
    matrix_to_euler,
    matrix_to_quaternion,
    quaternion_product,
    quaternion_to_axis_angle,
    quaternion_to_euler,
    quaternion_to_matrix,
    skew,
)
from lawful.groups.so2 import SO2, Circle, complex_to_matrix, matrix_to_complex
from lawful.groups.so3 import SO3

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
    "Haar",
    "LieGroup",
    "Orthogonal",
    "Scaling",
    "SymmetricGroup",
    "Translation",
    "UnitQuaternions",
    "VonMises",
    "WrappedNormal",
    "adjoint_matrix",
    "axis_angle_to_matrix",
    "axis_angle_to_quaternion",
    "bracket_matrix",
    "canonical_quaternion",
    "complex_matrix_to_quaternion",
    "complex_to_matrix",
    "euler_to_matrix",
    "euler_to_quaternion",
    "homogeneous_matrix",
    "matrix_to_axis_angle",
    "matrix_to_complex",
    "matrix_to_euler",
    "matrix_to_quaternion",
    "phi1",
    "quaternion_product",
    "quaternion_to_axis_angle",
    "quaternion_to_complex_matrix",
    "quaternion_to_euler",
    "quaternion_to_matrix",
    "rigid_act",
    "rigid_inverse",
    "rotation_and_translation",
    "skew",
]
