"""Columns that identify a row's format, or a kind of training that mpzero does not support (docs/limits.md)."""

from __future__ import annotations

from collections.abc import Collection

CHAT, PROMPT_COMPLETION, TEXT = "chat", "prompt_completion", "text"
FORMATS = (CHAT, PROMPT_COMPLETION, TEXT)
# Sets of columns, and the format that each set identifies.
KINDS = (
    (("messages",), CHAT),
    (("conversations",), CHAT),
    (("prompt", "completion"), PROMPT_COMPLETION),
    (("instruction", "output"), CHAT),
)
TRL = "use TRL with weights exported by zero_to_fp32"
TEXT_ALONE = "mpzero trains only on text; select the text column with --text_column"
# Columns and the reason for refusal; a dataset with a column "text" or "messages" is accepted.
UNSUPPORTED = (
    (("chosen", "rejected"), f"preferences (DPO), which mpzero does not train on: {TRL}"),
    (("prompt", "completion", "label"), f"rated answers (KTO), which mpzero does not train on: {TRL}"),
    (("image",), TEXT_ALONE),
    (("images",), TEXT_ALONE),
    (("audio",), TEXT_ALONE),
)


def refusal_of(columns: Collection[str]) -> str | None:
    """Returns the end of the error message, after "DATASET has", or None if the columns are supported."""
    names = {name.lower() for name in columns}
    if "text" in names or "messages" in names:
        return None
    for wanted, what in UNSUPPORTED:
        if names.issuperset(wanted):
            return f"columns {' and '.join(wanted)}: {what} (docs/limits.md)."
    if "prompt" in names and not names & {"completion", "response", "output", "answer"}:
        return f"prompts without completions (GRPO, PPO), which mpzero does not train on: {TRL} (docs/limits.md)."
    return None
