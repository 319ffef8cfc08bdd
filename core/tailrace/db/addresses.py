"""Connection strings: what we add to them, and what of them may be shown.

Pure functions over libpq's parameters. `connection` calls them at each connect; user and password never leave them in a
message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tailrace.errors import InvalidOption

__all__ = ["beside", "complete", "parse", "shown"]

# Ours unless the connection string or libpq's environment says otherwise: (parameter, variable, value).
_DEFAULTS: Final = (
    ("connect_timeout", "PGCONNECT_TIMEOUT", "10"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", "read-write"),
    ("client_encoding", "PGCLIENTENCODING", "UTF8"),
    ("keepalives_idle", None, "30"),
    ("keepalives_interval", None, "10"),
    ("keepalives_count", None, "3"),
    ("tcp_user_timeout", None, "30000"),
)
# Every session of ours; defaults of a role or database may differ and break the claim with 40001 or 25006.
_SESSION: Final = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "timezone": "UTC",
}


def parse(url: str) -> dict[str, str]:
    """Return the parameters of a URL or of key=value text.

    Args:
        url: What libpq accepts; empty means its environment variables and service file.

    Raises:
        InvalidOption: It is neither; the message does not repeat it, since it may hold a password.
    """
    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.ProgrammingError:
        raise InvalidOption(
            "is no connection string",
            field="database_url",
            hint="Write postgresql://user:password@host:5432/dbname, with special characters percent-encoded",
        ) from None


def beside(parameters: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the parameters with a root certificate that is a bare file name looked for beside the connection string.

    A Secret is mounted as a folder: its connection string can name the certificate by the Secret's own key.

    Args:
        parameters: What the file says.
        folder: Where the file is.
    """
    name = parameters.get("sslrootcert", "")
    if not name or Path(name).name != name or not (folder / name).is_file():
        return dict(parameters)
    return {**parameters, "sslrootcert": str(folder / name)}


def complete(
    parameters: Mapping[str, str], *, application_name: str, options: Mapping[str, str] | None, session: bool = True
) -> str:
    """Return the connection string to connect with.

    Args:
        parameters: What the user gave.
        application_name: How the session shows in pg_stat_activity.
        options: More settings of the session, such as {"lock_timeout": "500ms"}.
        session: False leaves all session settings out, for a pooler that refuses them.
    """
    merged = dict(parameters)
    for name, variable, value in _DEFAULTS:
        if name not in merged and (variable is None or variable not in os.environ):
            merged[name] = value
    merged["application_name"] = application_name
    if session:
        ours = " ".join(f"-c {name}={_escaped(value)}" for name, value in {**_SESSION, **(options or {})}.items())
        theirs = merged.get("options") or os.environ.get("PGOPTIONS", "")
        merged["options"] = f"{theirs} {ours}".strip()
    return make_conninfo("", **merged)


def shown(parameters: Mapping[str, str]) -> str:
    """Return host:port/dbname for messages, without user, password or any other parameter.

    Args:
        parameters: What the user gave; libpq's environment fills the gaps.
    """
    if "service" in parameters or ("PGSERVICE" in os.environ and "host" not in parameters):
        return f"service {parameters.get('service', os.environ.get('PGSERVICE', ''))}"
    hosts = (parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST") or "localhost").split(",")
    ports = (parameters.get("port") or os.environ.get("PGPORT") or "5432").split(",")
    if len(ports) < len(hosts):
        ports = ports * len(hosts)
    name = parameters.get("dbname") or os.environ.get("PGDATABASE") or parameters.get("user") or os.environ.get("PGUSER") or ""
    return ",".join(f"{_bracketed(host)}:{port or '5432'}" for host, port in zip(hosts, ports, strict=False)) + "/" + name


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
