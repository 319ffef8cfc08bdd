"""The Kubernetes API as the controller needs it: the only place that imports a Kubernetes client.

`client` reads and writes plain dictionaries, `errors` tells failures apart, `lease` and `events` are two kinds of object
with rules of their own, `watch` gives the watches their connection.
"""

from tailrace_controller.kube.client import Kube
from tailrace_controller.kube.errors import KubeConflict, KubeError, KubeMissing, KubeRefused, KubeUnavailable, NotLeading
from tailrace_controller.kube.events import Recorder
from tailrace_controller.kube.kinds import Kind
from tailrace_controller.kube.place import Place

__all__ = [
    "Kind",
    "Kube",
    "KubeConflict",
    "KubeError",
    "KubeMissing",
    "KubeRefused",
    "KubeUnavailable",
    "NotLeading",
    "Place",
    "Recorder",
]
