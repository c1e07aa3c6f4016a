"""Checks the connection to Hugging Face, and explains refused requests."""

from __future__ import annotations

import os
import socket
import sys
import threading
from urllib.parse import urlsplit

PATIENCE = 5  # seconds
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
REFUSED = (401, 403)  # HTTP status: not authenticated, or license not accepted


def use_cache_where_unreachable() -> None:
    """Makes the Hugging Face libraries use only the cache if the server does not respond within PATIENCE seconds.
    Otherwise, they would retry for half a minute. Must be called before they are imported. No-op with a proxy, through
    which the server may be reachable."""
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

    # Use a thread, because the timeout of the connection does not cover name resolution.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answers == [True]


def refusal(what: str, name: str, error: BaseException) -> str | None:
    """Returns a message if Hugging Face refused the request, else None. what: tokenizer or dataset."""
    status = refused_with(error)
    if status is None:
        return None
    page = f"https://huggingface.co/{'datasets/' if what == 'dataset' else ''}{name}"
    return (
        f"Hugging Face refuses access to the {what} '{name}' ({status}): if the name is correct, accept the {what}'s "
        f"license on {page} and set HF_TOKEN (or log in with 'hf auth login'), or pass a local folder."
    )


def refused_with(error: BaseException | None) -> int | None:
    """Returns the HTTP status of a refused request, from this error or its causes, or None for other errors."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in REFUSED:
            return status
        error = error.__cause__ or error.__context__
    return None
