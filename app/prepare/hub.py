"""What Hugging Face refuses, in one sentence."""

from __future__ import annotations

REFUSED = (401, 403)  # of HTTP: who asks is not known, or has not accepted the licence


def refusal(what: str, name: str, error: BaseException) -> str | None:
    """Why `what` (a tokenizer, a data set) of this name was not given; None where `error` says something else."""
    status = refused_with(error)
    if status is None:
        return None
    page = f"https://huggingface.co/{'datasets/' if what == 'data set' else ''}{name}"
    return (
        f"Hugging Face refuses the {what} '{name}' ({status}): the name is wrong, or it asks for an account that has "
        f"accepted its licence; accept it on {page} and set HF_TOKEN to a token of that account (or keep one with "
        "'hf auth login'), or give a local folder."
    )


def refused_with(error: BaseException | None) -> int | None:
    """The status of HTTP in this error or in one that led to it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in REFUSED:
            return status
        error = error.__cause__ or error.__context__
    return None
