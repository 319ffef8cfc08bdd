"""Units of rate limits in this worker: what a claim took and did not use goes back with the next take.

A unit is worth one start. It is taken before the claim in a transaction of its own; one that is lost on the way is lost,
so that starts never exceed the rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

FORGET_AT: Final = 200
"""So many claims are remembered before those are forgotten whose jobs have all ended."""


class Units:
    """The units of one queue's rates.

    Attributes:
        back: Units to give back, by rate.
        in_hand: Units were taken for a claim that has not been answered.
    """

    def __init__(self) -> None:
        self.back: dict[str, int] = {}
        self.in_hand = False
        self._claims: dict[int, dict[str, tuple[str, ...]]] = {}

    def unused(self, rates: Iterable[str], units: int) -> None:
        """Units that no job was found for."""
        if units > 0:
            for name in rates:
                self.back[name] = self.back.get(name, 0) + units

    @property
    def settled(self) -> bool:
        """Whether the database knows of every unit that was not used."""
        return not (self.back or self.in_hand)

    def used(self, token: int, rates: dict[str, tuple[str, ...]]) -> None:
        """Jobs were claimed for units; should one go back unstarted, so do its units.

        Args:
            token: Of the claim.
            rates: By task.
        """
        self._claims[token] = rates

    def unstarted(self, token: int, task: str) -> None:
        """A job of a claim ended or went back without having been started."""
        self.unused(self._claims.get(token, {}).get(task, ()), 1)

    def forget(self, held: Iterable[int]) -> None:
        """Forget claims of which this worker holds nothing more."""
        if len(self._claims) > FORGET_AT:
            kept = set(held)
            self._claims = {token: rates for token, rates in self._claims.items() if token in kept}

    def take_params(self, wants: Sequence[int], rates: Sequence[Sequence[str]]) -> dict[str, Any]:
        """The parameters of take_rates; what goes back is gone from here, whatever becomes of it.

        Args:
            wants: Per class, how many jobs it could start.
            rates: Per class, the rates it needs a unit of.
        """
        back, self.back = self.back, {}
        pairs = [(number, name) for number, names in enumerate(rates, 1) if wants[number - 1] > 0 for name in names]
        return {
            "wants": list(wants),
            "of_classes": [number for number, _ in pairs],
            "of_names": [name for _, name in pairs],
            "back_names": list(back),
            "backs": list(back.values()),
        }
