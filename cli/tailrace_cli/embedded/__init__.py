"""A private PostgreSQL server, for the demo, development and tests.

`binaries` finds the programs and the account to run them, `cluster` creates the data, `server` starts and stops it.
"""

from tailrace_cli.embedded.binaries import EmbeddedPostgresError, find_binaries
from tailrace_cli.embedded.cluster import default_state_dir
from tailrace_cli.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "default_state_dir", "find_binaries"]
