"""A proxy that loses the answer to the COMMIT of every n-th pipeline of the workers."""

from __future__ import annotations

from tests.rig.proxy import TcpProxy

EVERY = 50


class LossyProxy(TcpProxy):
    """Loses answers while `losing` is set; what was sent has taken effect."""

    losing = False
    pipelines = 0

    def wants_to_lose(self, application: str, seen: bytes) -> bool:
        """Tell whether this pipeline's answer is one to lose."""
        if not application.startswith("tailrace work") or b"COMMIT\0" not in seen:
            return False
        self.pipelines += self.losing
        return self.losing and self.pipelines % EVERY == 0
