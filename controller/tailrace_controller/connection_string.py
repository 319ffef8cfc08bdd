"""From the Secret that a JobQueue names to the database that it leads to, or to why it leads nowhere.

What is wrong is said without a word of the Secret's content. `settle` goes on from the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.db.allowed import Target, parse_target
from tailrace.errors import InvalidDSN
from tailrace.names.conditions import Reason
from tailrace.queue_spec import JobQueue
from tailrace_controller.kube.kinds import SECRET
from tailrace_controller.observed import Observed, Problem, SecretSeen
from tailrace_controller.secrets import Found, Secrets
from tailrace_controller.status.columns import parsed
from tailrace_controller.work_queue import Key

__all__ = ["connection_string"]


async def connection_string(
    secrets: Secrets, key: Key, seen: Observed, resource: JobQueue, *, allowed_hosts: Sequence[str]
) -> tuple[SecretSeen, Target | None]:
    """Read the connection string of a JobQueue.

    Args:
        secrets: Reads Secrets.
        key: The JobQueue.
        seen: With its last status.
        resource: Its spec.
        allowed_hosts: Hosts that connection strings may name; none allows all.

    Returns:
        What was seen of the Secret, and the database; None when there is a problem, which the first names.

    Raises:
        KubeUnavailable: The API server did not answer.
    """
    database = resource.spec.database
    if database is None:
        text = "spec.database: is missing (give secretRef with the name and key of a Secret)"
        return SecretSeen(problem=Problem(reason=Reason.SECRET_NOT_FOUND, message=text)), None
    reference = database.secret_ref
    found = await secrets.read(key, SECRET, reference.name)
    since = found.since or parsed((seen.previous.get("database") or {}).get("secretObservedTime")) or seen.now
    if (problem := _problem(found, reference.name, reference.key, key[0])) is not None or found.data is None:
        return SecretSeen(problem=problem), None
    try:
        raw = found.data[reference.key]
        target = parse_target(raw, schema=database.schema_name, allowed_hosts=allowed_hosts, keys=found.data)
    except InvalidDSN as error:
        text = f"the key {reference.key} of the Secret {reference.name}: {error}"
        return SecretSeen(observed_time=since, problem=Problem(reason=Reason.INVALID_DSN, message=text)), None
    return SecretSeen(observed_time=since), target


def _problem(found: Found, name: str, secret_key: str, namespace: str) -> Problem | None:
    if found.forbidden is not None:
        text = f"the controller may not read the Secret {name}: {found.forbidden}. Bind its role for Secrets in {namespace}"
        return Problem(reason=Reason.SECRET_FORBIDDEN, message=text)
    if found.data is None:
        text = f"there is no Secret {name} in {namespace}: create it with the connection string under the key {secret_key}"
        return Problem(reason=Reason.SECRET_NOT_FOUND, message=text)
    if secret_key not in found.data:
        has = ", ".join(sorted(found.data)) or "none"
        text = f"the Secret {name} has no key {secret_key} (it has {has}): add it, or correct spec.database.secretRef.key"
        return Problem(reason=Reason.SECRET_KEY_NOT_FOUND, message=text)
    return None
