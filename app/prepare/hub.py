"""One sentence for what Hugging Face refuses."""

from __future__ import annotations

REFUSED = (401, 403)  # HTTP status: the user is unknown, or has not accepted the licence


def refusal(what: str, name: str, error: BaseException) -> str | None:
    """Why `what` (a tokenizer, a data set) of this name was refused; None if `error` has another cause."""
    status = refused_with(error)
    if status is None:
        return None
    page = f"https://huggingface.co/{'datasets/' if what == 'data set' else ''}{name}"
    return (
        f"Hugging Face refuses the {what} '{name}' ({status}): the name is wrong, or it requires an account that has "
        f"accepted its licence; accept it on {page} and set HF_TOKEN to a token of that account (or keep one with "
        "'hf auth login'), or give a local folder."
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
