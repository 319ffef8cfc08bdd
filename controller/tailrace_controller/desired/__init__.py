"""What the children of a JobQueue should be: pure builders of plain dicts, for server-side apply.

A builder says only what the controller owns, so that fields of others stay. `reconcile` decides whether and when a body
is applied; `status` tells what became of it.
"""

from tailrace_controller.desired.children import Context, child_name
from tailrace_controller.desired.deployment import deployment
from tailrace_controller.desired.disruption_budget import disruption_budget
from tailrace_controller.desired.references import Reference, fingerprint, references
from tailrace_controller.desired.template import TemplateInvalid, pod_template

__all__ = [
    "Context",
    "Reference",
    "TemplateInvalid",
    "child_name",
    "deployment",
    "disruption_budget",
    "fingerprint",
    "pod_template",
    "references",
]
