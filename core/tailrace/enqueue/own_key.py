"""A handler that enqueues the key of its own job means: once more, after this run.

Without a word about the mode, `skip` would drop such a job, since its holder is the very job that runs. Neighbours: `senders`,
`tailrace.logs` (which job runs here).
"""

from __future__ import annotations

from tailrace.enqueue.statements import PreparedJob
from tailrace.logs import running


def settled(job: PreparedJob) -> PreparedJob:
    """Return a job as it is to be sent: in mode `after` when it has the key of the job that runs here and names no mode.

    Args:
        job: What was checked.
    """
    if job.key is None or job.mode_said:
        return job
    own = running.get()
    if own is None or not own.has_key(queue=job.queue, task=job.task, tenant=job.tenant, key=job.key):
        return job
    return job.as_successor()
