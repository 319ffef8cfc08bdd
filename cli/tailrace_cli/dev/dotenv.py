"""Reads a `.env` file: what differs on this machine, and what a cluster keeps in Secrets.

Lines NAME=value, with `export` before and quotes around where somebody is used to them. Nothing is put in place of
variables: what stands there is the value.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.errors import InvalidOption

__all__ = ["read_dotenv"]

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_.-][A-Za-z0-9_.-]*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*(?:#.*)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_dotenv(path: Path) -> dict[str, str]:
    """Return the variables of a file; none where there is no file.

    Args:
        path: The file.

    Raises:
        InvalidOption: It cannot be read, or a line is no NAME=value; the message says which.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidOption(f"cannot be read: {said}", field=str(path), hint="check its rights, and save it as UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:  # the line may hold a secret: it is not shown
            raise InvalidOption(f"line {number} is no NAME=value", field=str(path), hint="put a # before what is a comment")
        found[match["name"]] = _value(match["value"])
    return found


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return re.split(r"\s+#", text, maxsplit=1)[0].strip()
    if quoted["quote"] == "'":
        return quoted["text"]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted["text"])
