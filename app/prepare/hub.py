"""Whether Hugging Face is reachable, and error messages for refused requests."""

from __future__ import annotations

import os
import socket
import sys
import threading
from urllib.parse import urlsplit

PATIENCE = 5  # seconds
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
REFUSED = (401, 403)  # HTTP status: the user is unknown, or has not accepted the licence


def use_cache_where_unreachable() -> None:
    """Without a network, the libraries retry for half a minute before they use the cache. If the server does not
    respond within PATIENCE, makes them use only the cache. Call this before importing them. No-op with a proxy, which
    may be reachable in other ways."""
    known = "HF_HUB_OFFLINE" in os.environ or any(os.environ.get(name) for name in PROXIES)
    if known or "huggingface_hub" in sys.modules or _is_reachable():
        return
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    print(f"{_endpoint()} cannot be reached: using only the Hugging Face cache.", file=sys.stderr)


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _is_reachable() -> bool:
    answers = []

    def connect() -> None:
        parts = urlsplit(_endpoint())
        try:
            port = parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection((parts.hostname, port), timeout=PATIENCE).close()
            answers.append(True)
        except (OSError, ValueError):
            answers.append(False)

    # A DNS server that does not respond has its own timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answers == [True]


def refusal(what: str, name: str, error: BaseException) -> str | None:
    """Why `what` (a tokenizer, a dataset) of this name was refused; None if `error` has another cause."""
    status = refused_with(error)
    if status is None:
        return None
    page = f"https://huggingface.co/{'datasets/' if what == 'dataset' else ''}{name}"
    return (
        f"Hugging Face refuses the {what} '{name}' ({status}): the name is wrong, or it requires an account that has "
        f"accepted its license; accept it on {page} and set HF_TOKEN to a token of that account (or log in with "
        "'hf auth login'), or pass a local folder."
    )


def refused_with(error: BaseException | None) -> int | None:
    """The HTTP status in this error or in one that caused it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in REFUSED:
            return status
        error = error.__cause__ or error.__context__
    return None
