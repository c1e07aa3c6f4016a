"""Who asks for metrics, with connections that never ask, and who answers as mpzero's endpoint does."""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
import threading
import time

HOST = "127.0.0.1"
PATIENCE_SECONDS = 5  # for one connection or answer
MOST_CONNECTIONS = 64  # of the endpoint: HttpServer::kMostConnections


class Client(threading.Thread):
    """Holds connections that do not ask, and scrapes, until it is stopped."""

    def __init__(self, port: int, idle: int, period: float):
        super().__init__(daemon=True)
        self.port, self.wanted, self.period = port, idle, period
        self.idle: list[socket.socket] = []
        self.most_idle = 0
        self.scrapes: list[tuple[float, float]] = []  # when it began (seconds since 1970), how long it took
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self.period):
            try:
                self.renew()
                began, clock = time.time(), time.monotonic()
                self.scrape()
                self.scrapes.append((began, time.monotonic() - clock))
            except OSError:
                pass  # it is not open yet, or no longer
        for connection in self.idle:
            connection.close()

    def renew(self) -> None:
        """Opens what is missing, and opens again what the endpoint has closed."""
        kept = []
        for connection in self.idle:
            if is_open(connection):
                kept.append(connection)
            else:
                connection.close()
        self.idle = kept
        while len(self.idle) < self.wanted:
            connection = socket.create_connection((HOST, self.port), PATIENCE_SECONDS)
            connection.setblocking(False)
            self.idle.append(connection)
        self.most_idle = max(self.most_idle, len(self.idle))

    def scrape(self) -> None:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise OSError(f"status {answer.status}")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def stop(self) -> None:
        self.ended.set()
        self.join()


def is_open(connection: socket.socket) -> bool:
    """Nothing is ever sent to such a connection: it can be read once the peer has closed it."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class StandIn(threading.Thread):
    """Answers as the endpoint does: a connection that asks gets a page; of those that do not, the oldest makes room."""

    def __init__(self, port: int):
        super().__init__(daemon=True)
        self.listener = socket.create_server((HOST, port), backlog=4096)
        self.port = port
        self.ended = threading.Event()

    def run(self) -> None:
        silent: list[socket.socket] = []
        with selectors.DefaultSelector() as ready:
            ready.register(self.listener, selectors.EVENT_READ)
            while not self.ended.is_set():
                for key, _ in ready.select(0.1):
                    if key.fileobj is self.listener:
                        connection = self.listener.accept()[0]
                        ready.register(connection, selectors.EVENT_READ)
                        silent.append(connection)
                        closed = silent.pop(0) if len(silent) > MOST_CONNECTIONS else None
                    elif key.fileobj in silent:
                        closed = key.fileobj
                        silent.remove(closed)
                        with contextlib.suppress(OSError):
                            if closed.recv(4096):
                                closed.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"# no metrics\n" * 1000)
                    else:
                        continue
                    if closed is not None:
                        ready.unregister(closed)
                        closed.close()
        for connection in [self.listener, *silent]:
            connection.close()

    def stop(self) -> None:
        self.ended.set()
        self.join()
