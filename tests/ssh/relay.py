"""A TCP relay in front of sshd whose connections a test can cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Relay:
    """Forwards loopback connections; `cut_after` makes the next one break after that many bytes."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self.cut_after: int | None = None
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break every open connection, both ends at once."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._sockets += [near, far]
                limit, self.cut_after = self.cut_after, None
                threading.Thread(target=self._forward, args=(near, far, None), daemon=True).start()
                threading.Thread(target=self._forward, args=(far, near, limit), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
                passed += len(data)
                if limit is not None and passed >= limit:
                    break
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
