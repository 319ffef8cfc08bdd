"""The base of every model of the JobQueue and the types that several of them share.

Unknown fields are refused and nothing is coerced, as an API server would do: a quoted number in a file is a mistake that
should be told here and not first in a cluster. Descriptions come from the docstring below each field.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints
from pydantic.alias_generators import to_camel

__all__ = [
    "DNS_LABEL",
    "Count",
    "DaySeconds",
    "DnsLabel",
    "IntOrPercent",
    "LongSeconds",
    "Part",
    "Priority",
    "QueueName",
    "Sequence",
    "TaskName",
    "too_long",
]

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""What Kubernetes accepts as the name of most objects."""

DnsLabel = Annotated[str, StringConstraints(pattern=DNS_LABEL, min_length=1, max_length=63)]
QueueName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
TaskName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
DaySeconds = Annotated[int, Field(ge=1, le=86_400)]
LongSeconds = Annotated[int, Field(ge=1, le=10 * 366 * 86_400)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
IntOrPercent = Annotated[int, Field(ge=0, le=1000)] | Annotated[str, StringConstraints(pattern=r"^(100|[1-9]?[0-9])%$")]
Sequence = Strict(strict=False)
"""Marks a tuple field: a list in the document is what it is made from."""


class Part(BaseModel):
    """One object of the resource: fields in camelCase, unknown ones refused, no value coerced, never changed."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


def too_long(value: str, limit: int) -> bool:
    """Tell whether a name has more UTF-8 bytes than the database's column takes.

    Args:
        value: The name.
        limit: The limit in bytes.
    """
    return len(value.encode("utf-8", "surrogatepass")) > limit
