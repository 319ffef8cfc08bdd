"""Look at live jobs and change them: list, show, cancel, run now, reschedule, update.

Administration, not enqueueing: `tailrace.enqueue` puts jobs in, this package is behind `app.jobs` and `tailrace jobs`.
"""

from tailrace.jobs.records import JOB_STATES, Change, JobDetails, JobInfo, JobState
from tailrace.jobs.results import JobResult
from tailrace.jobs.statements import JobFilter, JobStatements
from tailrace.jobs.words import AsyncJobs, Jobs, NamedTask, SyncJobs

__all__ = [
    "JOB_STATES",
    "AsyncJobs",
    "Change",
    "JobDetails",
    "JobFilter",
    "JobInfo",
    "JobResult",
    "JobState",
    "JobStatements",
    "Jobs",
    "NamedTask",
    "SyncJobs",
]
