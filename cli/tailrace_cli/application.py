"""Finds the application that a command names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.app import App

__all__ = ["load"]


def load(name: str) -> App:
    """Import an application; modules of the working directory are found, as by `python -m`.

    Args:
        name: MODULE:APP.

    Raises:
        TailraceError: There is no such module or attribute, or it is no App.
    """
    from tailrace.app import load_app  # the other commands need no application

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load_app(name)
