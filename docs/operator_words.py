"""Makes the page of the words by which the operator and people talk: labels, annotations, conditions, reasons, events.

The enums that declare them are the source; `generate` writes the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from docs.sources import ROOT, members
from tailrace_controller.status.blockers import STALLED

__all__ = ["page"]

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

_NAMES: Final = ROOT / "core" / "tailrace" / "names"
_HEAD = (
    "These names are stable: selectors, alerts and scripts may rely on them. Sentences beside them may be worded anew. "
    "The fields of the resource are on [another page](jobqueue.md).\n"
)
_LABELS_HEAD = (
    "On Deployments, PodDisruptionBudgets and pods. Labels of `spec.template.metadata` stand beside them; where they clash, "
    "these win. `kubectl logs -l tailrace.dev/queue=webhooks` follows the workers of one queue.\n\n"
)
_CONDITIONS_HEAD = (
    "In `status.conditions`, all from the first reconcile, each with a reason and a sentence that says what to do. "
    "`kubectl wait --for=condition=Ready jobqueue/webhooks` waits for one. Helm, Flux and Argo CD wait until Ready is True and "
    "Reconciling False, and fail when Stalled is True; it never is together with Reconciling.\n\n"
)
_REASONS_HEAD = (
    "The column STATUS of `kubectl get jobqueues` is the reason of Ready. Those marked *waits* make Stalled True: nothing more "
    "happens until somebody changes something. The others are tried again.\n\n"
)
_EVENTS_HEAD = "Shown by `kubectl describe` and `kubectl events --for jobqueue/webhooks`. Repeated ones are counted.\n\n"


def page(*, note: str, table: Table) -> str:
    """Return the page.

    Args:
        note: The remark that the page is made, not written.
        table: What makes a table of a head and rows.
    """

    def rows(module: str, enum: str) -> list[tuple[str, str]]:
        return [(f"`{value}`", said) for value, said in members(_NAMES / f"{module}.py", enum)]

    waiting = {f"`{reason}`" for reason in STALLED}
    reasons = [(name, "waits" if name in waiting else "-", said) for name, said in rows("conditions", "Reason")]
    return "".join(
        [
            "# Labels, annotations, conditions and events\n\n",
            note,
            _HEAD,
            "\n## Labels\n\n",
            _LABELS_HEAD,
            table(("label", "value"), rows("labels", "Label")),
            "\n## Annotations\n\n",
            table(("annotation", "meaning"), rows("annotations", "Annotation")),
            "\n## Conditions\n\n",
            _CONDITIONS_HEAD,
            table(("condition", "True means"), rows("conditions", "ConditionType")),
            "\n## Reasons of conditions\n\n",
            _REASONS_HEAD,
            table(("reason", "waits for a person", "meaning"), reasons),
            "\n## Events\n\n",
            _EVENTS_HEAD,
            table(("event", "when"), rows("event_reasons", "EventReason")),
        ]
    )
