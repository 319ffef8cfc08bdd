"""A Lease object as a lock: taken when it is free or has run out, renewed, and given back.

Others' leases run out by our own clock, counted from when we saw them change: nobody's wall clock is believed. `leader`
decides when to try and what to do about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tailrace.clock import boot
from tailrace_controller.kube.client import Kube
from tailrace_controller.kube.errors import KubeConflict, KubeError
from tailrace_controller.kube.kinds import LEASE

__all__ = ["LeaseLock"]

log: Final = logging.getLogger("tailrace.controller")


class LeaseLock:
    """One Lease, wanted by one process.

    Attributes:
        holder: Who has it as far as we saw; empty for nobody.
    """

    def __init__(
        self, kube: Kube, *, namespace: str, name: str, identity: str, seconds: float, clock: Callable[[], float] = boot
    ) -> None:
        """Take the place of the Lease.

        Args:
            kube: The API server, with connections that nothing else waits for.
            namespace: Where the Lease is.
            name: Its name.
            identity: Ours, unlike that of any other process.
            seconds: How long it lasts without a renewal.
            clock: Seconds that only go forward, also while the machine is suspended.
        """
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self._seconds, self._clock = seconds, clock
        self._seen: Mapping[str, Any] = {}
        self._seen_at = 0.0
        self.holder = ""

    async def take(self) -> bool:
        """Take the Lease or renew it; returns whether we have it now.

        Raises:
            KubeError: The API server did not answer or refused; whether we have it is unknown then.
        """
        found = await self._read()
        if found is None:
            return await self._create()
        self._look(found)
        if self.holder not in ("", self._identity) and not self._run_out():
            return False
        try:
            self._look(await self._kube.replace(LEASE, self._held(found)))
        except KubeConflict:
            return False  # another was faster; the next try reads again
        return True

    async def release(self) -> None:
        """Give the Lease back so that another need not wait; only if it still is ours."""
        try:
            found = await self._read()
            if found is not None and found["spec"].get("holderIdentity") == self._identity:
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._kube.replace(LEASE, {**found, "spec": spec})
        except KubeError as error:
            log.warning("the Lease could not be given back: %s", error)

    async def _read(self) -> dict[str, Any] | None:
        found = await self._kube.get(LEASE, namespace=self._namespace, name=self._name)
        if found is not None:
            found["spec"] = found.get("spec") or {}
        return found

    async def _create(self) -> bool:
        body = {"metadata": {"namespace": self._namespace, "name": self._name}, "spec": {}}
        try:
            self._look(await self._kube.create(LEASE, self._held(body)))
        except KubeConflict:
            return False
        return True

    def _look(self, found: Mapping[str, Any]) -> None:
        spec = found["spec"]
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock()
        self.holder = str(spec.get("holderIdentity") or "")

    def _run_out(self) -> bool:
        lasts = max(self._seconds, float(self._seen.get("leaseDurationSeconds") or 0))
        return self._clock() >= self._seen_at + lasts

    def _held(self, found: Mapping[str, Any]) -> dict[str, Any]:
        spec, now = dict(found["spec"]), _now()
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + ("holderIdentity" in spec)
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": round(self._seconds), "renewTime": now}
        return {**found, "spec": spec}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
