"""The fault proxy ends with all its connections; one that it left behind would be blamed on a later test."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.rig.kube.cluster import Cluster
from tests.rig.kube.fault_proxy import fault_proxy_to

Client = Callable[[socket.socket, Cluster], socket.socket]


def _speechless(connection: socket.socket, _cluster: Cluster) -> socket.socket:
    """A client that never begins its handshake."""
    return connection


def _impolite(connection: socket.socket, cluster: Cluster) -> socket.socket:
    """A client that is refused, and never answers the server's farewell."""
    trust = ssl.create_default_context(cafile=str(cluster.ca))
    speaking = trust.wrap_socket(connection, server_hostname="127.0.0.1")
    speaking.sendall(b"nonsense\r\n\r\n")
    assert b" 400 " in speaking.recv(4096)
    return socket.socket(fileno=speaking.detach())  # TLS in the client would answer


def _waiting(connection: socket.socket, cluster: Cluster) -> socket.socket:
    """A client that keeps its connection for the next request."""
    trust = ssl.create_default_context(cafile=str(cluster.ca))
    speaking = trust.wrap_socket(connection, server_hostname="127.0.0.1")
    speaking.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert speaking.recv(4096)
    return socket.socket(fileno=speaking.detach())


@pytest.mark.parametrize("client", [_speechless, _impolite, _waiting])
def test_a_closed_proxy_leaves_no_connection(control_plane: Cluster, client: Client) -> None:
    with contextlib.ExitStack() as stack:
        with fault_proxy_to(control_plane) as proxy:
            address = ("127.0.0.1", urlsplit(proxy.url).port or 0)
            connection = stack.enter_context(socket.create_connection(address, timeout=10))
            connection = stack.enter_context(client(connection, control_plane))
            connection.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):  # a farewell may still be there
                pass
