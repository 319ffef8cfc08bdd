"""What a look at a database tells.

Made by `database`, read by the reconcile; it decides with it whether this is the database of before.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.errors import DatabaseChanged, MigrationPending

__all__ = ["DatabaseFacts", "DatabaseState"]


@dataclass(frozen=True, kw_only=True)
class DatabaseFacts:
    """A database that this controller can work with.

    Attributes:
        address: host:port/dbname.
        installation_id: Its identity marker.
        schema_version: The newest migration that it has.
        server_version: PostgreSQL's own, such as 18.1.
        pending: Migrations wait, although the controller can work: what to do about it. None when none does, or when those that
            wait have to until older workers are gone.
    """

    address: str
    installation_id: str
    schema_version: int
    server_version: str
    pending: MigrationPending | None = None

    def must_be(self, installation_id: str | None) -> None:
        """Refuse another installation than the one that was seen before.

        Args:
            installation_id: The marker of before; None when there is none yet.

        Raises:
            DatabaseChanged: The Secret leads elsewhere now.
        """
        if installation_id and installation_id != self.installation_id:
            raise DatabaseChanged(
                f"database {self.address} is installation {self.installation_id}, before it was {installation_id}: nothing is "
                "written to it, no worker is started for it",
                hint="Point the Secret at the database of before; if the change is meant, name another Secret in "
                "spec.database.secretRef",
            )


@dataclass(frozen=True, kw_only=True)
class DatabaseState:
    """How a database does, for metrics.

    Attributes:
        address: host:port/dbname.
        reached: Whether it answered the last time; None when it was never asked.
        failures: Failures since the last answer.
    """

    address: str
    reached: bool | None
    failures: int
