"""The controller's own credentials, which may change schemas: one file for each database in a mounted folder.

A credential is found by host, port and database, never by what a JobQueue says beside them. Files are read at each use, so a
rotated Secret is taken up. `database` migrates with the result.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from tailrace.db.allowed import Target, parse_target
from tailrace.errors import InvalidDSN
from tailrace.names.events import Event

__all__ = ["Credentials"]

log: Final = logging.getLogger("tailrace.controller")


class Credentials:
    """The files of one folder."""

    def __init__(self, folder: Path | None) -> None:
        """Read nothing yet.

        Args:
            folder: Where the files are; None for no credential at all.
        """
        self._folder = folder

    def of(self, target: Target) -> Target | None:
        """Return the credential for a database, with the schema of the target; None when there is none.

        A file that holds no connection string is passed by with a line in the log.

        Args:
            target: Where a Secret leads.
        """
        files = self._files()
        for file, content in files.items():
            try:
                own = parse_target(content, schema=target.schema, keys=files)
            except InvalidDSN as error:
                if file.endswith((".crt", ".pem")):
                    continue  # a root certificate that another file names
                fields = {"event": Event.CREDENTIAL_UNREADABLE, "file": file}
                log.warning("%s holds no credential: %s", file, error, extra=fields)
                continue
            if (own.host, own.port, own.dbname) == (target.host, target.port, target.dbname):
                return own
        return None

    def _files(self) -> dict[str, bytes]:
        """A mounted Secret has its files behind links, and folders whose names begin with two dots."""
        if self._folder is None or not self._folder.is_dir():
            return {}
        return {file.name: file.read_bytes() for file in sorted(self._folder.iterdir()) if file.is_file()}
