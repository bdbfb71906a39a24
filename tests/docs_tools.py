"""The tools of docs/, as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).resolve().parents[1] / "docs"


def tool(name: str) -> ModuleType:
    """docs/NAME.py, which finds the tools next to it as it does when it is run."""
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    module = importlib.import_module(name)
    assert Path(str(module.__file__)).parent == DOCS
    return module
