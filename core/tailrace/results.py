"""What a handler returned, as it is kept: plain JSON of at most 64 KiB.

The worker writes results of tasks with `keep_result`, `tailrace.jobs` reads them. Neighbours: `json_text` (what PostgreSQL
accepts), `completion` (a result given with the completion of a job).
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from tailrace.errors import InvalidPayload
from tailrace.json_text import encode

__all__ = ["RESULT_LIMIT_BYTES", "plain_result"]

RESULT_LIMIT_BYTES: Final = 65_536


def plain_result(value: object) -> Any:
    """Return a result as plain JSON values.

    Args:
        value: Anything that pydantic can write: models, dataclasses, times, UUIDs, lists, dicts …

    Raises:
        InvalidPayload: It is no JSON, or larger than 64 KiB as JSON; the field is the path.
    """
    try:
        plain = to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, RecursionError) as problem:
        raise InvalidPayload(str(problem).partition("\n")[0], field="result", hint="Return plain values") from None
    text = encode(plain, limit=RESULT_LIMIT_BYTES, root="result", hint="Store it in a table of your own and return its key")
    return json.loads(text)
