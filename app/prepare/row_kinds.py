"""Columns that identify a row's format."""

CHAT, PROMPT_COMPLETION, TEXT = "chat", "prompt_completion", "text"
FORMATS = (CHAT, PROMPT_COMPLETION, TEXT)
# Columns of each kind of row, and its format.
KINDS = (
    (("messages",), CHAT),
    (("conversations",), CHAT),
    (("prompt", "completion"), PROMPT_COMPLETION),
    (("instruction", "output"), CHAT),
)
