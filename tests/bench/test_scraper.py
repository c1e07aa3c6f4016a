"""bench/scraper.py: the client and its stand-in for the endpoint, with each other."""

from __future__ import annotations

import time

from scraper import Client, StandIn
from watching_cost import free_port


def test_connections_that_were_closed_are_opened_again() -> None:
    """The stand-in keeps 64 of them, as the endpoint does."""
    server = StandIn(free_port())
    server.start()
    client = Client(server.listener.getsockname()[1], idle=100, period=0.01)
    client.start()
    deadline = time.monotonic() + 60
    while len(client.scrapes) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    client.stop()
    server.stop()
    assert len(client.scrapes) >= 3
    assert client.most_idle == 100
