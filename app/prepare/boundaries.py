"""Finds positions at which a text can be split without changing its token ids: no tokenizer step depends on both sides.

There are three kinds of candidates: after a newline that precedes a letter, digit or quote; before a space; before a
newline. A kind is used only if all steps of the tokenizer are known and these conditions hold:

- no added token spans such a position;
- the normalizer changes only single characters there;
- a step of the pre-tokenizer always splits there, or the model is BPE and no token in its vocabulary spans it.
"""

from __future__ import annotations

import re
from itertools import product

from .cutting import Cuts

# Characters that do not combine with their neighbors; \w excludes combining marks.
_LEFT = r"[\w!-~，。、！？；：（）「」『』《》]"
AFTER_NEWLINE = r'(?<=[!-~])\n(?=[A-Za-z0-9"])'
_AFTER_ANY_NEWLINE = rf"(?<={_LEFT})\n(?=\w)"
BYTES = Cuts((AFTER_NEWLINE, rf"(?<={_LEFT})(?= )", r"(?=[\s\S])"))
_UNICODE = ("NFC", "NFD", "NFKC", "NFKD")
_CHARACTERWISE = (*_UNICODE, "Lowercase", "StripAccents", "BertNormalizer", "Nmt", "Precompiled", "Prepend", "Strip")
_SPACES_ALONE = re.compile(r"(?: |\\s|\\n)(?:\+|\*|\{\d+,\d*\})?")
_SAMPLES_LEFT = ("Some words", "I'LL 12", "(x) y;", "über 北京", "a  b\tc.", "x\n\nz!")
_SAMPLES_RIGHT = ("more words ", "12345 a", '"quote" \n', "It's  x\n\n  y", "война и мир ", "e")


def cuts_of(tokenizer, definition: dict) -> Cuts:
    """Returns the cuts for a tokenizers.Tokenizer, which may encode special tokens as text. definition: its parsed
    tokenizer.json."""
    steps = _flat(definition.get("pre_tokenizer"), "pretokenizers")
    normalizers = _flat(definition.get("normalizer"), "normalizers")
    byte_level = [step for step in steps if step["type"] == "ByteLevel"]
    starts_plainly = bool(byte_level) and not any(step.get("add_prefix_space") for step in byte_level)
    starts_plainly &= all(step["type"] in ("ByteLevel", "Split", "Digits") for step in steps)
    starts_plainly &= all(normalizer["type"] in _UNICODE for normalizer in normalizers)
    patterns = []
    if starts_plainly:
        kinds = {AFTER_NEWLINE: '[A-Za-z0-9"]', _AFTER_ANY_NEWLINE: r"[\w\ufffd]"}
        patterns += [pattern for pattern, right in kinds.items() if _newline_ends_tokens(right, definition)]
    for space in (" ", "\n"):
        if all(map(_is_local, normalizers)) and _divides_before(space, tokenizer, steps, definition):
            patterns.append(_left_of(definition) + f"(?={space})")
    cuts = [Cuts((pattern,), in_context=not starts_plainly) for pattern in patterns]
    agreeing = [cut.patterns[0] for cut in cuts if _agrees_on_samples(tokenizer, cut)]
    return Cuts(tuple(agreeing), in_context=not starts_plainly)


def _flat(step: dict | None, key: str) -> list[dict]:
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [inner for part in step[key] for inner in _flat(part, key)]


def _is_local(normalizer: dict) -> bool:
    """Returns True if the normalizer can be applied separately to both sides of a space."""
    if normalizer["type"] != "Replace":
        return normalizer["type"] in _CHARACTERWISE
    if (text := normalizer["pattern"].get("String")) is not None:
        return len(text) == 1 or not any(character.isspace() for character in text)
    return _SPACES_ALONE.fullmatch(normalizer["pattern"]["Regex"]) is not None


def _newline_ends_tokens(right: str, definition: dict) -> bool:
    """Returns True if no byte-level BPE token contains a newline followed by a character that matches `right`."""
    if definition["model"]["type"] != "BPE" or any(re.search(f"\n{right}", word) for word in _byte_words(definition)):
        return False
    return not any(
        re.search(r"\n\S", token["content"]) or (token["lstrip"] and re.match(r'[\w"]', token["content"]))
        for token in definition["added_tokens"]
    )


def _left_of(definition: dict) -> str:
    """Returns the pattern of the character before a cut at a space. Excludes the last characters of added tokens,
    because added tokens split the text and may include the spaces after them."""
    last = {token["content"][-1:] for token in definition["added_tokens"]} - {""}
    return rf"(?<={_LEFT})" + (f"(?<![{''.join(map(re.escape, sorted(last)))}])" if last else "")


def _divides_before(space: str, tokenizer, steps: list[dict], definition: dict) -> bool:
    """Returns True if splitting a text before `space` does not change its token ids."""
    across = re.compile(f"{_LEFT}{space}" if space == "\n" else f"{_LEFT}[ ▁]")
    if any(across.search(token["content"]) for token in definition["added_tokens"]):
        return False
    plain, spaced = _normalized(tokenizer, "x"), _normalized(tokenizer, f"x{space}y")
    if not (plain.endswith("x") and spaced.startswith(plain) and spaced.endswith("y")):
        return False
    image = spaced[len(plain) : -1]
    divides = is_bytes = False
    for step in steps:
        kind = step["type"]
        if kind == "Metaspace":
            image = step["replacement"] if image == " " else image
            divides |= step.get("split", True) and image == step["replacement"]
        elif kind == "ByteLevel":
            divides |= step.get("use_regex", True) and image.isspace()
            is_bytes = True
        elif kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
            divides |= image.isspace()
        elif kind == "Split":
            # _agrees_on_samples() detects patterns that match across a space.
            text = step["pattern"].get("String", "")
            if len(text) > 1 and any(character.isspace() for character in text):
                return False
        elif kind not in ("Digits", "Punctuation"):
            return False
    if len(image) != 1:
        return False
    return divides or _no_word_across(image, definition, is_bytes)


def _normalized(tokenizer, text: str) -> str:
    return text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)


def _words(definition: dict) -> list[str]:
    """Returns the BPE vocabulary without added tokens."""
    added = {token["content"] for token in definition["added_tokens"]}
    return [word for word in definition["model"]["vocab"] if word not in added]


def _byte_words(definition: dict) -> list[str]:
    """Returns the byte-level BPE vocabulary as text. Incomplete UTF-8 sequences become U+FFFD."""
    from tokenizers import decoders

    decode = decoders.ByteLevel().decode
    return [decode([word]) for word in _words(definition)]


def _no_word_across(image: str, definition: dict, is_bytes: bool) -> bool:
    """Returns True if no BPE token contains `image`, the character that represents a space, after a non-space, so that
    merges cannot join both sides of the space."""
    model = definition["model"]
    if model["type"] != "BPE" or model.get("end_of_word_suffix") or model.get("continuing_subword_prefix"):
        return False
    if is_bytes:
        return not any(re.search(rf"\S{image}", word) for word in _byte_words(definition))
    images = [image]
    if image not in model["vocab"]:
        images = [f"<0x{byte:02X}>" for byte in image.encode()]
        if not model.get("byte_fallback") or any(code not in model["vocab"] for code in images):
            return False  # an unknown token, which may fuse with an unknown character before it
    across = re.compile("|".join(rf"[^\s▁]{re.escape(text)}" for text in images))
    return not any(across.search(word) for word in _words(definition))


def _agrees_on_samples(tokenizer, cuts: Cuts) -> bool:
    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    for pattern, left, right in product(cuts.patterns, _SAMPLES_LEFT, _SAMPLES_RIGHT):
        for space in ("\n", " "):
            text = left + space + right
            for match in re.finditer(pattern, text):
                place = match.end()
                before = text[place - 1] if cuts.in_context else ""
                if ids(text[:place]) + ids(before + text[place:])[len(ids(before)) :] != ids(text):
                    return False
    return True
