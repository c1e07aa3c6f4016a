"""Short forms of messages, and examples as texts in which loss tokens are in [[ ]]."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import prepare_module

TEMPLATES = Path(__file__).parent / "templates"


def user(text) -> dict:
    return {"role": "user", "content": text}


def assistant(text, **more) -> dict:
    return {"role": "assistant", "content": text, **more}


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def template_of(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def made_of(
    folder: Path | str, rows: list[dict], format: str = "chat", seq_length: int = 4096, rewritten: str = "split", **more
):
    """What app/prepare makes of the rows, which are lines of a.jsonl. folder: of a tokenizer; or 'bytes'."""
    encoder = prepare_module("encoders").load_encoder(str(folder), None, None)
    source = folder / "chat_template.jinja" if isinstance(folder, Path) else TEMPLATES / "bytes.jinja"
    renderer = "no template."
    if source.exists():
        template = source.read_text(encoding="utf-8")
        renderer = prepare_module("masks").Renderer(template, encoder.template_tokens, rewritten, **more)
    examples = prepare_module("examples")
    row = prepare_module("rows").Row
    units = [examples.Unit(row(f"a.jsonl line {i}", values), 0) for i, values in enumerate(rows, 1)]
    [(_, made)] = examples.Examples(encoder, format, seq_length, renderer).function()(units)
    return made


def texts_of(folder: Path | str, rows: list[dict], **more) -> list[str]:
    encoder = prepare_module("encoders").load_encoder(str(folder), None, None)
    decode, texts = prepare_module("offsets").decoding(encoder), []
    for ids, mask in made_of(folder, rows, **more).examples:
        pieces = [f"[[{decode([i])}]]" if trained else decode([i]) for i, trained in zip(ids, mask, strict=True)]
        texts.append("".join(pieces).replace("]][[", ""))
    return texts
