"""Every claim of lawful; the pytest plugin turns each into a test."""

import importlib
from collections.abc import Iterator

from lawful.checking.targets import find_claims
from lawful.laws import Claim


def claims() -> Iterator[Claim]:
    for _, function in find_claims(importlib.import_module("lawful")):
        yield from function()
