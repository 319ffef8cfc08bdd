"""Users of the test's database, with passwords and rights of their own.

Roles belong to the whole server, so each is dropped after its test with all it owns in that database.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.rig.servers import RigDatabase


@dataclass
class RigLogin:
    """A user of one database."""

    database: RigDatabase
    name: str
    password: str

    @property
    def dsn(self) -> str:
        """Its connection string, password included."""
        return make_conninfo(self.database.dsn, user=self.name, password=self.password)

    @property
    def url(self) -> str:
        """The same as a URL of the keywords that a JobQueue may use."""
        place = conninfo_to_dict(self.database.dsn)
        return f"postgresql://{self.name}:{self.password}@{place['host']}:{place['port']}/{self.database.name}"

    def rotate(self) -> None:
        """Give it another password; open sessions go on."""
        self.password = secrets.token_hex(12)
        self._as_owner(sql.SQL("alter role {} password {}").format(sql.Identifier(self.name), sql.Literal(self.password)))

    def grant(self, *roles: str) -> None:
        """Make it a member of roles."""
        for role in roles:
            self._as_owner(sql.SQL("grant {} to {}").format(sql.Identifier(role), sql.Identifier(self.name)))

    def revoke(self, *roles: str) -> None:
        """End its membership."""
        for role in roles:
            self._as_owner(sql.SQL("revoke {} from {}").format(sql.Identifier(role), sql.Identifier(self.name)))

    def may_create(self) -> None:
        """Let it make schemas in its database."""
        self._as_owner(
            sql.SQL("grant create on database {} to {}").format(sql.Identifier(self.database.name), sql.Identifier(self.name))
        )

    def drop(self) -> None:
        """End its sessions and remove it with all it owns in its database."""
        with self.database.connect() as conn:
            conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [self.name])
            conn.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(self.name)))
            conn.execute(sql.SQL("drop role {}").format(sql.Identifier(self.name)))

    def _as_owner(self, statement: sql.Composed) -> None:
        with self.database.connect() as conn:
            conn.execute(statement)


class MakeLogin(Protocol):
    """Makes a user of a database, a member of these roles."""

    def __call__(self, database: RigDatabase, *roles: str) -> RigLogin:
        """Make one."""


@pytest.fixture
def make_login() -> Iterator[MakeLogin]:
    """Make users: `make_login(database, "tailrace_worker")`; they are dropped after the test."""
    made: list[RigLogin] = []

    def make(database: RigDatabase, *roles: str) -> RigLogin:
        login = RigLogin(database, f"u_{secrets.token_hex(6)}", secrets.token_hex(12))
        with database.connect() as conn:
            conn.execute(
                sql.SQL("create role {} login password {}").format(sql.Identifier(login.name), sql.Literal(login.password))
            )
        made.append(login)
        login.grant(*roles)
        return login

    yield make
    for login in reversed(made):
        login.drop()
