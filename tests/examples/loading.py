"""Imports an example by its file name."""

import importlib.util
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(name):
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
