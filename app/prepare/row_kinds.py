"""Columns that identify a row's format."""

CHAT, PROMPT_COMPLETION, TEXT = "chat", "prompt_completion", "text"
FORMATS = (CHAT, PROMPT_COMPLETION, TEXT)
# Sets of columns, and the format that each set identifies.
KINDS = (
    (("messages",), CHAT),
    (("conversations",), CHAT),
    (("prompt", "completion"), PROMPT_COMPLETION),
    (("instruction", "output"), CHAT),
)
