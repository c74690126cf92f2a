"""Rotations: of the plane, of space, of any dimension, as matrices, quaternions and complex numbers."""
