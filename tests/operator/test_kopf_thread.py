"""The thread of the watches by itself: what is left of it when it ends."""

from __future__ import annotations

from pathlib import Path

import psutil
from psycopg.conninfo import conninfo_to_dict

from tailrace_controller.kopf_thread import KopfThread, Watched
from tailrace_controller.kube import Place
from tailrace_controller.kube.kinds import JOBQUEUE
from tests.rig.kube.cluster import Cluster
from tests.rig.proxy import MakeProxy
from tests.rig.waiting import aeventually


async def test_no_connection_outlasts_it_on_a_network_that_has_fallen_silent(
    control_plane: Cluster, kube_namespace: str, proxy_to: MakeProxy, tmp_path: Path
) -> None:
    """A TLS connection that is closed waits for its peer's answer; the loop that would close it then is gone by that time."""
    proxy = proxy_to(f"host=127.0.0.1 port={control_plane.url.rpartition(':')[2]}")
    port = int(str(conninfo_to_dict(proxy.dsn)["port"]))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(control_plane.kubeconfig.read_text().replace(control_plane.url, f"https://127.0.0.1:{port}"))
    thread = KopfThread(
        place=Place.find(kubeconfig=kubeconfig),
        watched=[Watched(kind=JOBQUEUE)],
        namespaces=[kube_namespace],
        news=lambda kind, event, body: None,
    )
    thread.start()
    await aeventually(lambda: "jobqueues" in thread.heard.by_resource(), 20, what="an open watch")
    assert connections_to(port)
    proxy.pause()
    assert await thread.stop(seconds=20)
    assert connections_to(port) == []


def connections_to(port: int) -> list[object]:
    return [one for one in psutil.Process().net_connections(kind="tcp") if one.raddr[1:] == (port,)]
