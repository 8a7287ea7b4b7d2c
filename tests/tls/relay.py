"""The end of TLS in front of a server that has none, as stunnel or a managed service puts it there."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator

from certificates import Authority, Pair

from stoker.stack import ports

HEARD_S = 0.5
"""So long the connection of a client that is turned away stays open, lest it is reset before the reason is read."""


@contextlib.contextmanager
def tls_relay(target: int, server: Pair, clients: Authority | None = None) -> Iterator[int]:
    """Serves TLS on a free port and hands what comes on to a port of the loopback, until the block is left.

    Args:
        server: its certificate and key.
        clients: whose certificates a client has to show; None for no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)

    class Relayed(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            outside = context.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
            with contextlib.suppress(OSError), outside:  # a client that goes
                try:
                    outside.do_handshake()
                except ssl.SSLError:
                    time.sleep(HEARD_S)
                    raise
                with socket.create_connection((ports.LOOPBACK, target)) as inside:
                    back = threading.Thread(target=_pump, args=(inside, outside), daemon=True)
                    back.start()
                    _pump(outside, inside)
                    back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server((ports.LOOPBACK, 0), Relayed) as serving:
        threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield int(serving.server_address[1])
        serving.shutdown()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
