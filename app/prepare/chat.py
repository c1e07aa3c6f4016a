"""Parses the conversations in rows: messages, ShareGPT conversations, prompt and completion, instruction and output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from chat_template import OWN_VARIABLES, REASONING

from . import PrepareError, shown
from .row_kinds import FORMATS, KINDS, TEXT, refusal_of
from .rows import DoubleKey, Row, two_keys

ROLES = ("system", "developer", "user", "assistant", "tool")
SHAREGPT = {
    "human": "user",
    "gpt": "assistant",
    "system": "system",
    "function_call": "assistant",
    "observation": "tool",
}
RENDERED = OWN_VARIABLES | {"tools"}  # variables that rows cannot set
_FLAGS = ("train", "weight")  # message keys that include a message in the loss (1) or exclude it (0)


@dataclass(frozen=True)
class Conversation:
    where: str
    messages: list[dict]
    trained: list[bool]  # by message: True if it contributes to the loss
    tools: list | None = None
    kwargs: dict = field(default_factory=dict)  # other template variables

    def texts(self) -> Iterator[str]:
        """Yields the strings that a template may render: contents, reasoning, tool calls and tools."""
        parts = ("content", "reasoning_content", "tool_calls")
        left = [self.tools, *(message.get(part) for message in self.messages for part in parts)]
        while left:  # JSON may be nested too deeply for recursion
            part = left.pop()
            if isinstance(part, str):
                yield part
            elif isinstance(part, list):
                left += part
            elif isinstance(part, dict):
                left += [*part, *part.values()]


@dataclass(frozen=True)
class Completion:
    """A prompt and its completion, without a chat template."""

    where: str
    prompt: str
    text: str

    def texts(self) -> list[str]:
        return [self.prompt, self.text]


def detected(columns: list[str], column: str) -> tuple[str, str]:
    """Returns the format and the columns that determine it. column: value of --text_column."""
    if refused := refusal_of(columns):
        raise PrepareError(refused)
    found = [(names, kind) for names, kind in KINDS if set(names) <= set(columns)]
    if len({kind for _, kind in found}) > 1 or (found and column in columns):
        raise PrepareError(
            f"columns of several formats ({', '.join(map(shown, sorted(columns)))}): pass --format {'|'.join(FORMATS)}."
        )
    return (found[0][1], " and ".join(found[0][0])) if found else (TEXT, "")


def conversation_of(row: Row, format: str, chosen: bool = True) -> Conversation | Completion:
    """Parses a row. Rejects rows that match more than one format, unless --format was passed (`chosen`)."""
    where, values, double = row
    if double is not None:
        raise two_keys(where, double)
    found = [(names, kind) for names, kind in KINDS if all(values.get(name) is not None for name in names)]
    kinds = [names for names, kind in found if kind == format]
    if not kinds:
        wanted = " or ".join(" and ".join(names) for names, kind in KINDS if kind == format)
        names = ", ".join(map(shown, sorted(values))) or "none"
        raise PrepareError(f"{where} has no {wanted}, only {names}: rename its columns, or pass a different --format.")
    if len(kinds) > 1 or (len(found) > 1 and not chosen):
        both = "; ".join(" and ".join(names) for names, _ in found)
        remedy = "remove one" if len(kinds) > 1 else f"remove one, or pass --format {'|'.join(FORMATS)}"
        raise PrepareError(f"{where} has several conversations ({both}): {remedy}.")
    values = {**values, **{name: _json(values[name], where, name) for name in _LISTS if name in values}}
    if kinds[0] == ("prompt", "completion"):
        return _of_completion(values, where)
    if kinds[0] == ("messages",):
        messages = _list(values["messages"], where, "messages")
    elif kinds[0] == ("conversations",):
        turns = _list(values["conversations"], where, "conversations")
        messages = [_of_sharegpt(turn, where) for turn in turns]
    else:
        messages = _of_instruction(values, where)
    return _conversation(messages, values, where)


# Columns that may contain JSON as text.
_LISTS = ("messages", "conversations", "tools", "chat_template_kwargs")


def _json(value: object, where: str, name: str) -> object:
    if not isinstance(value, str):
        return value
    double = DoubleKey()
    try:
        value = json.loads(value, object_pairs_hook=double)
    except (ValueError, RecursionError) as error:
        raise PrepareError(f"{where}: '{name}' is a string that is not JSON ({error}): fix it.") from error
    if double.name is not None:
        raise two_keys(f"{where}: '{name}'", double.name)
    return value


def _list(value: object, where: str, name: str) -> list[dict]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise PrepareError(f"{where}: '{name}' is not a list of objects: fix it.")
    return value


def _of_sharegpt(turn: dict, where: str) -> dict:
    speaker = str(turn.get("from"))
    if (role := SHAREGPT.get(speaker)) is None:
        raise PrepareError(
            f"{where}: unknown speaker '{shown(speaker)}' in 'from' (supported: {', '.join(SHAREGPT)}): rename it, or "
            "remove the message."
        )
    message = {"role": role, "content": turn.get("value"), **{key: turn[key] for key in _FLAGS if key in turn}}
    if speaker == "function_call":
        calls = _json(turn.get("value"), where, "value")
        message |= {"content": "", "tool_calls": calls if isinstance(calls, list) else [calls]}
    return message


def _of_instruction(values: dict, where: str) -> list[dict]:
    asked = "\n\n".join(str(values[name]) for name in ("instruction", "input") if values.get(name))
    history = values.get("history") or []
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise PrepareError(f"{where}: 'history' is not a list of [instruction, output] pairs: fix it.")
    roles = ("user", "assistant")
    pairs = [*history, (asked, values["output"])]
    return [{"role": role, "content": text} for pair in pairs for role, text in zip(roles, pair, strict=True)]


def _of_completion(values: dict, where: str) -> Conversation | Completion:
    prompt, completion = values["prompt"], values["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        return Completion(where, prompt, completion)
    if isinstance(prompt, str) or isinstance(completion, str):
        raise PrepareError(f"{where}: only one of 'prompt' and 'completion' is a string: use the same type for both.")
    after = _list(completion, where, "completion")
    found = _conversation(_list(prompt, where, "prompt") + after, values, where)
    begin = len(found.messages) - len(after)
    return replace(found, trained=[flag and i >= begin for i, flag in enumerate(found.trained)])


def _conversation(messages: list[dict], values: dict, where: str) -> Conversation:
    if not messages:
        raise PrepareError(f"{where} has no messages: remove the row.")
    if values.get("system"):
        if any(message.get("role") == "system" for message in messages):
            raise PrepareError(f"{where} has a column 'system' and a message with role 'system': remove one.")
        messages = [{"role": "system", "content": values["system"]}, *messages]
    kwargs, tools = values.get("chat_template_kwargs") or {}, values.get("tools") or None
    if not isinstance(kwargs, dict) or not RENDERED.isdisjoint(kwargs):
        own = ", ".join(sorted(RENDERED))
        raise PrepareError(
            f"{where}: 'chat_template_kwargs' must be an object without the reserved keys {own}: fix it."
        )
    if isinstance(tools, list):
        tools = [_json(tool, where, "tools") for tool in tools]
    if tools is not None:
        tools = _list(tools, where, "tools")
        for tool in tools:
            function = tool.get("function") or tool
            if not isinstance(function, dict) or not isinstance(function.get("name") or "", str):
                raise PrepareError(f"{where}: 'name' or 'function' in 'tools' has the wrong type: fix it.")
    trained = [_is_trained(message, where) for message in messages]
    return Conversation(where, [_message(message, where) for message in messages], trained, tools, kwargs)


def _is_trained(message: dict, where: str) -> bool:
    flags = [message[name] for name in _FLAGS if message.get(name) is not None]
    if any(flag not in (0, 1) for flag in flags):
        raise PrepareError(f"{where}: 'train' or 'weight' in a message is {shown(str(flags[0]))}: use 0 or 1.")
    is_assistant = message.get("role") == "assistant"
    if not is_assistant and any(flags):
        raise PrepareError(
            f"{where}: a message with role '{shown(str(message.get('role')))}' sets 'train' or 'weight' to 1: only "
            "assistant messages can contribute to the loss; remove the key."
        )
    return is_assistant and all(flags)


def _message(message: dict, where: str) -> dict:
    """Returns a copy without null values and loss flags, with the content as text and parsed tool call arguments."""
    role = message.get("role")
    if role not in ROLES:
        raise PrepareError(
            f"{where}: unknown role '{shown(str(role))}' (supported: {', '.join(ROLES)}): rename it, or remove the "
            "message."
        )
    copy = {key: value for key, value in message.items() if value is not None and key not in _FLAGS}
    copy["content"] = _text(message.get("content"), where)
    reasoning = [name for name in REASONING if name in copy]
    if wrong := [name for name in reasoning if not isinstance(copy[name], str)]:
        raise PrepareError(f"{where}: '{wrong[0]}' in a message is not a string: fix it.")
    if reasoning:
        copy["reasoning_content"] = copy[reasoning[0]]
    if calls := copy.get("tool_calls"):
        copy["tool_calls"] = [
            _call(call, where) for call in _list(_json(calls, where, "tool_calls"), where, "tool_calls")
        ]
    return copy


def _text(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    kinds = [part.get("type", "text") for part in parts if isinstance(part, dict)]
    if not all(isinstance(text, str) for text in texts) or any(kind != "text" for kind in kinds):
        raise PrepareError(
            f"{where}: 'content' in a message is neither a string nor a list of text parts: mpzero trains only on text."
        )
    return "".join(texts)


def _call(call: dict, where: str) -> dict:
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise PrepareError(f"{where}: a call in 'tool_calls' has no function name: fix it.")
    function = {**function, "arguments": _json(function.get("arguments", {}), where, "arguments")}
    return {**call, "function": function} if "function" in call else function
