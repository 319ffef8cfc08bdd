"""Connection strings that somebody else wrote, read by an allow list.

A controller connects with strings out of other people's Secrets. libpq follows some keywords into files and services of the
process that connects (`sslkey`, `passfile`, `service`), so only what is listed here passes, and what libpq would read by
itself is turned off. Pure; the controller's `databases` connect with the result, `addresses` read strings of our own users.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NoReturn

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from tailrace.db.addresses import shown
from tailrace.db.statements import quote_schema
from tailrace.errors import InvalidDSN, InvalidOption

__all__ = ["KEYWORDS", "Target", "parse_target"]

KEYWORDS: Final = (
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "sslmode",
    "sslrootcert",
    "connect_timeout",
    "target_session_attrs",
    "options",
)
"""What a connection string of a JobQueue may say."""

_MOST_BYTES: Final = 8192
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SESSIONS: Final = ("any", "read-write", "primary")
_SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_SEARCH_PATH: Final = re.compile(r"(?:-c|--)search_path=\S+")
_UNKNOWN: Final = re.compile(r'invalid (?:URI query parameter:|connection option) "(\w{1,63})"')
# What libpq would take from files of this process: a password file, client certificates, Kerberos tickets.
_NO_FILES: Final = {"passfile": "/dev/null/none", "sslcertmode": "disable", "gssencmode": "disable"}
_CONNECT_SECONDS: Final = 5


@dataclass(frozen=True, kw_only=True)
class Target:
    """A database that a Secret leads to.

    Attributes:
        host: Its host, or several parted by commas.
        port: Its port, or as many as hosts.
        dbname: The database.
        user: The user.
        schema: The bare name of the schema.
        dsn: The connection string (secret), without its root certificate; see `url`.
        root_certificate: The certificates that the server's must come from; None for the system's, or none asked for.
    """

    host: str
    port: str
    dbname: str
    user: str
    schema: str
    dsn: SecretStr = field(repr=False)
    root_certificate: bytes | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """host:port/dbname for messages and status."""
        return shown({"host": self.host, "port": self.port, "dbname": self.dbname})

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes it one database for connections and their budget."""
        return self.host, self.port, self.dbname, self.user

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What makes it one installation for maintenance, whoever connects."""
        return self.host, self.port, self.dbname, self.schema

    def url(self, root_certificate: Path | None = None) -> SecretStr:
        """Return the connection string to connect with (secret).

        Args:
            root_certificate: The file that `root_certificate` was written to, where there is one.
        """
        if root_certificate is None:
            return self.dsn
        return SecretStr(make_conninfo(self.dsn.get_secret_value(), sslrootcert=str(root_certificate)))


def parse_target(
    raw: bytes, *, schema: str, allowed_hosts: Sequence[str] = (), keys: Mapping[str, bytes] | None = None
) -> Target:
    """Read the connection string of a Secret.

    Args:
        raw: The value of the Secret's key: a URL or keyword=value text.
        schema: The bare name of the schema.
        allowed_hosts: Names that are allowed, `*.example.com` for all below one; none allows every host.
        keys: All keys of the Secret, where sslrootcert may name one.

    Raises:
        InvalidDSN: It is none, or has a keyword, value or host that is not allowed; names it, and never repeats the string.
    """
    given = _given(raw)
    for name in given:
        if name not in KEYWORDS:
            _refuse(
                name, "is not allowed in the connection string of a JobQueue", f"Leave it out; allowed are {', '.join(KEYWORDS)}"
            )
    try:
        quote_schema(schema)
    except InvalidOption as error:
        raise InvalidDSN(str(error), hint="Correct spec.database.schemaName") from None
    host, port = _where(given, allowed_hosts)
    user = given.get("user") or _refuse("user", "is missing", "Write it: postgresql://user:password@host:5432/dbname")
    _check_words(given)
    certificate = _root_certificate(given, keys or {})
    kept = {name: value for name, value in given.items() if certificate is None or name != "sslrootcert"}
    dbname = given.get("dbname") or user
    ours = {"host": host, "port": port, "dbname": dbname, "connect_timeout": str(_CONNECT_SECONDS), **_NO_FILES}
    return Target(
        host=host,
        port=port,
        dbname=dbname,
        user=user,
        schema=schema,
        dsn=SecretStr(make_conninfo("", **{**kept, **ours})),
        root_certificate=certificate,
    )


def _refuse(keyword: str, problem: str, remedy: str) -> NoReturn:
    raise InvalidDSN(problem, field=keyword, hint=remedy)


def _given(raw: bytes) -> dict[str, str]:
    """The keywords and values. A mistyped keyword is named; what resembles none may be a piece of a password."""
    remedy = "Write postgresql://user:password@host:5432/dbname, with special characters percent-encoded"
    try:
        text = raw.decode("utf-8").strip() if len(raw) <= _MOST_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    if not text or "\0" in text:
        raise InvalidDSN(f"the connection string is empty, no UTF-8 text, or longer than {_MOST_BYTES} bytes", hint=remedy)
    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except psycopg.ProgrammingError as problem:
        unknown = _UNKNOWN.search(str(problem))
    if unknown is not None and get_close_matches(unknown[1], KEYWORDS):
        _refuse(unknown[1], "is no keyword of a connection string", f"Allowed are {', '.join(KEYWORDS)}")
    raise InvalidDSN("the text is no connection string", hint=remedy)


def _where(given: Mapping[str, str], allowed_hosts: Sequence[str]) -> tuple[str, str]:
    hosts = [host.strip() for host in given.get("host", "").split(",")]
    ports = [port.strip() or "5432" for port in given.get("port", "").split(",")]
    for host in hosts:
        if not host:
            _refuse("host", "is missing", "Name the server; a cluster knows no socket of ours")
        if host.startswith(("/", "@")) or any(char.isspace() for char in host):
            _refuse("host", "must be a name or an address, not a socket", "Name the server")
        if allowed_hosts and not any(_matches(host, pattern) for pattern in allowed_hosts):
            _refuse("host", f"{host} is not among the hosts that this controller may connect to", "See its allowedDatabaseHosts")
    for port in ports:
        if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
            _refuse("port", "must be from 1 to 65535", "Correct it, or leave it out for 5432")
    if len(ports) not in (1, len(hosts)):
        _refuse("port", "must be one, or one for each host", "Correct it")
    return ",".join(hosts), ",".join(ports)


def _matches(host: str, pattern: str) -> bool:
    name, wanted = host.rstrip(".").lower(), pattern.strip().rstrip(".").lower()
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


def _check_words(given: Mapping[str, str]) -> None:
    for keyword, words in (("sslmode", _SSL_MODES), ("target_session_attrs", _SESSIONS)):
        if keyword in given and given[keyword] not in words:
            _refuse(keyword, f"must be one of {', '.join(words)}", "Correct it")
    seconds = given.get("connect_timeout", "1")
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 9):
        _refuse("connect_timeout", "must be a whole number of seconds", "Correct it, or leave it out")
    try:
        words_of = shlex.split(given.get("options", ""))
    except ValueError:
        words_of = ["?"]
    while words_of:
        word = words_of.pop(0)
        word = word + words_of.pop(0) if word == "-c" and words_of else word
        if not _SEARCH_PATH.fullmatch(word):
            _refuse("options", "may set search_path only", "Write options=-csearch_path=NAME, or leave it out")


def _root_certificate(given: Mapping[str, str], keys: Mapping[str, bytes]) -> bytes | None:
    name = given.get("sslrootcert")
    if name is None or name == "system":
        return None
    if not _SECRET_KEY.fullmatch(name) or name not in keys:
        _refuse(
            "sslrootcert", "must be system, or a key of the same Secret", "Put the certificate into the Secret and name its key"
        )
    return keys[name]
