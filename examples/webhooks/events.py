"""The events of the shop, and the script that made `events.jsonl`.

The file is committed, so that every run of the demo sends the same events. `producer` reads it.
Write it anew with `python -m examples.webhooks.events`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

EVENTS_FILE = Path(__file__).with_name("events.jsonl")
COUNT = 2_000

_SEED = 20_260_301
_KINDS = ("order.created", "order.paid", "order.shipped", "order.refunded")
_WEIGHTS = (40, 35, 20, 5)
_CURRENCIES = ("EUR", "EUR", "EUR", "USD", "GBP")


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one order of one customer.

    Attributes:
        event_id: 1 to 2,000, in the order of time.
        kind: Such as "order.paid".
        order_number: The shop's number of the order.
        customer: Whose system wants to know.
        amount_cents: The worth of the order.
        currency: Three letters.
        occurred_at: When, as an ISO 8601 time with its offset.
    """

    event_id: int
    kind: str
    order_number: str
    customer: str
    amount_cents: int
    currency: str
    occurred_at: str


def generate(count: int = COUNT) -> Iterator[Event]:
    """Yield plausible events: a few busy customers, prices that end in .99, more orders than refunds.

    Args:
        count: How many; the first n are the same for each count.
    """
    chance = random.Random(_SEED)
    now = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
    for event_id in range(1, count + 1):
        now += timedelta(seconds=chance.expovariate(1 / 11))
        yield Event(
            event_id=event_id,
            kind=chance.choices(_KINDS, _WEIGHTS)[0],
            order_number=f"SO-{100_000 + event_id * 7 % 9_973}",
            customer=f"c{min(1 + int(chance.expovariate(1 / 25)), 120):03d}",
            amount_cents=100 * chance.randint(5, 240) - 1,
            currency=chance.choice(_CURRENCIES),
            occurred_at=now.isoformat(timespec="seconds"),
        )


def read_events(count: int = COUNT) -> list[Event]:
    """Read the first events of the committed file.

    Args:
        count: How many, 1 to 2,000.
    """
    with EVENTS_FILE.open(encoding="utf-8") as lines:
        return [Event(**json.loads(line)) for line in islice(lines, count)]


def main() -> None:
    """Write the file."""
    lines = [json.dumps(asdict(event), separators=(",", ":")) + "\n" for event in generate()]
    EVENTS_FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
