"""What the status of a JobQueue says: pure functions from what a reconcile observed to the document that is applied.

The whole document is made each time; what was not observed now keeps its last value. `observed` has the input.
"""

from tailrace_controller.status.conditions import conditions
from tailrace_controller.status.document import status
from tailrace_controller.status.pods import pod_facts

__all__ = ["conditions", "pod_facts", "status"]
