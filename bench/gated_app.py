"""`bench.app` behind the starting gate, for worker processes.

The worker's own modules are imported first, so the clock starts with all imports done on both
sides; connecting and everything after it lie within the clock.
"""

import uvloop  # noqa: F401  # imported for its cost

import tailrace_worker.service  # noqa: F401  # imported for its cost
from bench import protocol
from bench.app import app as app

protocol.gate()
