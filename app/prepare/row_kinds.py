"""The columns of conversations, by which their rows are recognized."""

CHAT, PROMPT_COMPLETION, TEXT = "chat", "prompt_completion", "text"
FORMATS = (CHAT, PROMPT_COMPLETION, TEXT)
# The columns that a row of each kind has, and its format.
KINDS = (
    (("messages",), CHAT),
    (("conversations",), CHAT),
    (("prompt", "completion"), PROMPT_COMPLETION),
    (("instruction", "output"), CHAT),
)
