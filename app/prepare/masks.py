"""Selects the text of a conversation that contributes to the loss: assistant turns with their end-of-turn tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from chat_template import has_generation_tags, render

from . import PrepareError
from .chat import Conversation

# Handling of answers that the template renders differently when other messages follow.
SPLIT, MASK, REFUSE = "split", "mask", "refuse"
# Templates may write a newline after the end-of-turn token.
END_OF_TURN_WITHIN = 3  # tokens
REWRITTEN, UNTAGGED, LEFT_OUT = "rewritten", "untagged", "left out: "  # keys of `counts`
FIRST, EMPTY, UNTRAINED, NO_CALLS = (
    "the assistant speaks first",
    "an assistant message is empty",
    "no assistant message contributes to the loss",
    "the template omits tool calls of an assistant message",
)


class Dropped(Exception):
    """Raised to drop a conversation. The message is the reason. Dropped conversations are counted by reason."""


class Marked(NamedTuple):
    text: str
    spans: list[tuple[int, int]]  # character ranges that contribute to the loss


@dataclass(frozen=True)
class Renderer:
    template: str
    special_tokens: dict[str, str]
    rewritten_turns: str  # SPLIT, MASK or REFUSE
    variables: dict = field(default_factory=dict)  # for all conversations; variables of a conversation take precedence

    @property
    def tagged(self) -> bool:
        return has_generation_tags(self.template)

    def examples(self, conversation: Conversation, counts: Counter) -> list[Marked]:
        """Returns the full conversation and, if rewritten_turns is SPLIT, one example for each rewritten answer."""
        answers = [i for i, trained in enumerate(conversation.trained) if trained]
        if not answers:
            raise Dropped(UNTRAINED)
        if any(_is_empty(conversation.messages[i]) for i in answers):
            raise Dropped(EMPTY)
        try:
            found = (
                self._by_tags(conversation, counts) if self.tagged else self._by_prefixes(conversation, answers, counts)
            )
        except PrepareError as error:
            raise PrepareError(f"{conversation.where}: {error}.") from error
        _count_missing(conversation, [one.text for one in found], counts)
        return found

    def _render(self, of: Conversation, messages: list[dict], **kwargs) -> str:
        return self._render_with_spans(of, messages, **kwargs)[0]

    def _render_with_spans(self, of: Conversation, messages: list[dict], **kwargs):
        variables = {"tools": of.tools, **self.variables, **of.kwargs, **kwargs}
        return render(self.template, messages, special_tokens=self.special_tokens, **variables)

    def _by_tags(self, of: Conversation, counts: Counter) -> list[Marked]:
        text, tagged = self._render_with_spans(of, of.messages)
        spans: list[tuple[int, int]] = []
        for begin, end in tagged:  # some templates tag the end of a turn separately
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            if end > begin:
                spans.append((begin, end))
        if not spans:
            raise Dropped(UNTRAINED)
        indices = [i for i, message in enumerate(of.messages) if message["role"] == "assistant"]
        flags = [of.trained[i] for i in indices]
        # If only some messages are tagged, spans cannot be assigned to messages: search the whole text for tool calls.
        answers = [text[begin:end] for begin, end in spans] if len(spans) == len(flags) else [text] * len(flags)
        for i, answer in zip(indices, answers, strict=True):
            if of.trained[i]:
                _check_calls(of.messages[i], answer)
        if all(flags):
            counts[UNTAGGED] += max(len(flags) - len(spans), 0)
            return [Marked(text, spans)]
        if len(spans) != len(flags):
            raise PrepareError(
                f"the template has generation tags around {len(spans)} of {len(flags)} assistant messages, so "
                "'train' and 'weight' cannot be applied: remove these keys, or use a different --chat_template"
            )
        return [Marked(text, [span for span, trained in zip(spans, flags, strict=True) if trained])]

    def _by_prefixes(self, of: Conversation, answers: list[int], counts: Counter) -> list[Marked]:
        if answers[0] == 0:
            raise Dropped(FIRST)
        full = self._render(of, of.messages)
        found = [self._answer(of, i, full) for i in answers]
        rewritten = [i for i, span in zip(answers, found, strict=True) if span is None]
        if rewritten and self.rewritten_turns == REFUSE:
            raise PrepareError(
                f"the template renders message {rewritten[0] + 1} (an answer) differently when other messages follow: "
                "pass --rewritten_turns split or mask"
            )
        counts[REWRITTEN] += len(rewritten)
        kept = {i: span for i, span in zip(answers, found, strict=True) if span is not None}
        marked = [Marked(full, list(kept.values()))] if kept else []
        trained = {i: full[begin:end] for i, (begin, end) in kept.items()}
        if self.rewritten_turns == SPLIT:
            for i in rewritten:
                text = self._render(of, of.messages[: i + 1])
                begin, end = self._answer(of, i, text)
                marked.append(Marked(text, [(begin, end)]))
                trained[i] = text[begin:end]
        for i, answer in trained.items():
            _check_calls(of.messages[i], answer)
        if not marked:
            raise Dropped(UNTRAINED)
        return marked

    def _answer(self, of: Conversation, index: int, full: str) -> tuple[int, int] | None:
        """Returns the character range of the answer in the full text, or None if the answer is rewritten there."""
        before = of.messages[:index]
        prompt = self._render(of, before, add_generation_prompt=True)
        # An empty think block, which disables reasoning, is part of the prompt.
        bare = prompt
        if "enable_thinking" in self.template:
            bare = self._render(of, before, add_generation_prompt=True, enable_thinking=False)
        ended = self._render(of, of.messages[: index + 1])
        start = next((len(begin) for begin in (bare, prompt) if ended.startswith(begin)), None)
        if start is None:
            raise PrepareError(
                f"the prompt for message {index + 1} (add_generation_prompt) is not a prefix of the rendered "
                "conversation, so the message cannot be located: use a --chat_template with generation tags"
            )
        if full.startswith(ended):
            return start, len(ended)
        # The full text contains the answer without the empty think block.
        if full.startswith(prompt) and full.startswith(ended[start:], len(prompt)):
            return len(prompt), len(prompt) + len(ended) - start
        return None


def _is_empty(message: dict) -> bool:
    texts = (message["content"], message.get("reasoning_content") or "")
    return not (message.get("tool_calls") or any(text.strip() for text in texts))


def _check_calls(message: dict, answer: str) -> None:
    """Raises Dropped if the template omits tool calls of the message. answer: the text to search."""
    for text in (message.get("reasoning_content"), message["content"]):  # may contain the function name
        answer = answer.replace((text or "").strip(), "", 1)
    if not all(_is_in(call.get("function", call)["name"], [answer]) for call in message.get("tool_calls", ())):
        raise Dropped(NO_CALLS)


def _count_missing(of: Conversation, found: list[str], counts: Counter) -> None:
    """Counts strings that the template omits, such as tool definitions (Llama 3) and reasoning from earlier turns
    (Qwen3)."""
    pieces = [("tools", (tool.get("function") or tool).get("name")) for tool in of.tools or ()]
    for message in of.messages:
        pieces += [
            (f"content of {message['role']}", message["content"]),
            ("reasoning", message.get("reasoning_content")),
        ]
    for what, text in pieces:
        if not _is_in(text, found):
            counts[LEFT_OUT + what] += 1


def _is_in(text: str | None, found: list[str]) -> bool:
    """Returns True if the template rendered the text, possibly without surrounding whitespace or as JSON."""
    return text is None or any(form in one for one in found for form in (text.strip(), json.dumps(text)[1:-1]))


def token_mask(offsets: np.ndarray, spans: list[tuple[int, int]]) -> Iterator[np.ndarray]:
    """Yields the indices of the tokens inside each span. offsets: [tokens, 2], character range of each token.
    Excludes tokens that straddle the beginning or end of a span, because their ids depend on both sides."""
    begins, ends = offsets[:, 0], offsets[:, 1]
    for begin, end in spans:
        yield np.flatnonzero((begins >= begin) & (ends <= end) & (ends > begins))


def num_straddling(offsets: np.ndarray, spans: list[tuple[int, int]]) -> int:
    begins, ends = offsets[:, 0], offsets[:, 1]
    return sum(int(((begins < edge) & (ends > edge)).sum()) for span in spans for edge in span)


def end_of_turn(ids: np.ndarray, special_ids: frozenset[int]) -> int | None:
    """Returns the index of the last special token among the last END_OF_TURN_WITHIN tokens of a turn, or None."""
    last = range(len(ids) - 1, max(len(ids) - 1 - END_OF_TURN_WITHIN, -1), -1)
    return next((i for i in last if int(ids[i]) in special_ids), None)
