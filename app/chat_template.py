"""Finds a tokenizer's chat template and renders messages like transformers' apply_chat_template."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from prepare import PrepareError, shown
from prepare.tokenizer_files import CONFIG, TEMPLATE, read_object, read_text

# Fixed date for templates that print the date (e.g. Llama 3.2): the current date would change the token ids daily.
DATE = datetime(2024, 7, 26)
REASONING = ("reasoning_content", "thinking", "reasoning")  # message keys for reasoning, highest precedence first


def load_chat_template(folder: Path, override: Path | None = None) -> str:
    """Returns the chat template of the tokenizer in `folder`, or the content of the `override` file."""
    if override is not None:
        if (template := read_text(override)) is None:
            raise PrepareError(f"--chat_template {shown(override)} does not exist: pass a Jinja file.")
        return template
    if (template := read_text(folder / TEMPLATE)) is not None:
        return template
    template = read_object(folder / CONFIG).get("chat_template")
    if isinstance(template, list):  # named templates; transformers uses "default"
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if not isinstance(template, str):
        raise PrepareError(
            f"{shown(folder)} has no chat template ({TEMPLATE}, or 'chat_template' in {CONFIG}): it may be a base "
            "model's tokenizer; pass --chat_template FILE, e.g. from the instruct model."
        )
    return template


# Variables that render() sets.
OWN_VARIABLES = frozenset({"template", "messages", "special_tokens", "add_generation_prompt"})


def variables_of(text: str, own: frozenset[str] = OWN_VARIABLES) -> dict:
    """Parses --chat_template_kwargs, which must not set the reserved variables `own`."""
    try:
        variables = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PrepareError(f"--chat_template_kwargs is not JSON ({error}): pass a JSON object.") from error
    if not isinstance(variables, dict) or own & variables.keys():
        raise PrepareError(
            f"--chat_template_kwargs must be a JSON object without the reserved keys {', '.join(sorted(own))}."
        )
    return variables


def render(
    template: str,
    messages: list[dict],
    *,
    tools: list | None = None,
    add_generation_prompt: bool = False,
    special_tokens: dict[str, str],
    **kwargs,
) -> tuple[str, list[tuple[int, int]]]:
    """Renders messages. Returns the text and the (begin, end) of each {% generation %} block. special_tokens: token
    text by name, e.g. bos_token. kwargs: other template variables, e.g. enable_thinking. An empty list of tools is
    passed as None."""
    compiled = _compiled(template)
    spans: list[tuple[int, str]] = []
    blocks: list[str] = []
    compiled.environment.generation = (blocks, spans)
    variables = {"tools": tools or None, "documents": None, **special_tokens, **kwargs}
    try:
        blocks.extend(
            compiled.generate(messages=_plain(messages), add_generation_prompt=add_generation_prompt, **variables)
        )
    except PrepareError:
        raise
    except Exception as error:  # templates may raise any exception
        raise PrepareError(f"the chat template cannot render the messages ({shown(error)})") from error
    text = "".join(blocks)
    if any(not text.startswith(block, begin) for begin, block in spans):
        raise PrepareError("the chat template has a {% generation %} tag in a macro or filter: move the tag out of it")
    return text, [(begin, begin + len(block)) for begin, block in spans]


def has_generation_tags(template: str) -> bool:
    return re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None


def _plain(messages: list[dict]) -> list[dict]:
    """Removes null values, which templates print as None, and stores reasoning under both keys that templates read."""
    plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
    for message in plain:
        reasoning = next((message[key] for key in REASONING if key in message), None)
        if reasoning is not None:
            message["reasoning_content"] = reasoning
            message.setdefault("thinking", reasoning)
    return plain


class _Generation(Extension):
    """Adds the tag {% generation %}, which marks the assistant's text."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's name)

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller) -> str:
        text = caller()
        blocks, spans = self.environment.generation
        spans.append((sum(map(len, blocks)), text))
        return text


def _raise_exception(message: str):
    raise TemplateError(message)


def _to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """Replaces Jinja's tojson filter, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache
def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = DATE.strftime
    return environment


@lru_cache
def _compiled(template: str):
    try:
        return _environment().from_string(template)
    except TemplateError as error:
        line = getattr(error, "lineno", "?")
        raise PrepareError(f"the chat template is not valid Jinja (line {line}: {shown(error)}): fix it") from error
