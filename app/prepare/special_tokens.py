"""Special tokens: BOS and end-of-text of documents, and special token names in text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import xxhash

from . import PrepareError, shown
from .tokenizer_files import CONFIG, Declared

CHOICES_SHOWN = 8
# Parts of end-of-text names; candidates that match are listed first.
_ENDS = re.compile(r"end|eo[stdm]|im_end|</s>|stop|sep", re.IGNORECASE)
_NAME = re.compile(r"<\S+>|\[\S+\]")  # form of a special token
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_PROBES = ("a", "the", "1", ".", "\n")  # each tokenizer has an id for at least one probe


def eos_of(
    name: str, vocabulary: dict[str, int], special: dict[str, int], declared: Declared, given: str | None
) -> int:
    """Returns the end-of-text id. given: --eos_token. vocabulary: all tokens. special: tokens marked as special."""
    token = given or declared.eos_token
    if token is not None:
        if token not in vocabulary:
            where = "--eos_token" if given else "declared as eos_token in its files"
            raise PrepareError(
                f"Tokenizer '{shown(name)}' has no token '{shown(token)}' ({where}): pass a different --eos_token."
            )
        return vocabulary[token]
    names = {index: token for token, index in vocabulary.items()}
    ids = [index for index in declared.eos_ids if index in names]
    if len(declared.eos_ids) == len(ids) == 1:
        return ids[0]
    choices = {names[index]: index for index in ids} or special
    choices = choices or {token: index for token, index in vocabulary.items() if _NAME.fullmatch(token)}
    ordered = sorted(choices.items(), key=lambda choice: (not _ENDS.search(choice[0]), choice[1]))
    more = f" and {len(ordered) - CHOICES_SHOWN:,} more" if len(ordered) > CHOICES_SHOWN else ""
    listed = ", ".join(f"'{shown(token)}' ({index})" for token, index in ordered[:CHOICES_SHOWN]) or "none"
    reason = (
        "declares several end-of-text ids" if len(declared.eos_ids) > 1 else "does not declare its end-of-text token"
    )
    raise PrepareError(
        f"Tokenizer '{shown(name)}' {reason}: pass --eos_token, or set eos_token in its {CONFIG}; "
        f"candidates: {listed}{more}."
    )


def bos_of(
    name: str, tokenizer, vocabulary: dict[str, int], declared: Declared, add_bos: str
) -> tuple[int | None, bool, str | None]:
    """add_bos: value of --add_bos. Returns the BOS id (or None), whether documents begin with BOS, and a note for the
    user (or None)."""
    added = _put_in_front(tokenizer)
    if add_bos == "auto" and len(added) > 1:
        raise PrepareError(
            f"The post-processor of tokenizer '{shown(name)}' prepends the ids {added} to a text, but documents can "
            "begin with only one id: pass --add_bos true or false."
        )
    token = declared.bos_token
    # The id that the post-processor prepends is BOS under any name, such as [CLS].
    bos = added[0] if len(added) == 1 else declared.bos_id if token is None else vocabulary.get(token)
    if add_bos == "true" and bos is None:
        reason = (
            "declares no bos_token"
            if token is None
            else f"declares the bos_token '{shown(token)}', which is not in its vocabulary"
        )
        raise PrepareError(f"Tokenizer '{shown(name)}' {reason}: fix {CONFIG}, or omit --add_bos true.")
    adds = bool(added) if add_bos == "auto" else add_bos == "true"
    note = None
    if add_bos == "auto" and declared.add_bos is not None and declared.add_bos != adds:
        note = (
            f"{CONFIG} has add_bos_token {str(declared.add_bos).lower()}, but the tokenizer's post-processor "
            f"takes precedence and adds {'BOS' if adds else 'no BOS'}; --add_bos {str(not adds).lower()} overrides "
            "it"
        )
    return bos, adds, note


def _put_in_front(tokenizer) -> list[int]:
    """Returns the ids that the post-processor prepends to a text."""
    for probe in _PROBES:
        plain = tokenizer.encode(probe, add_special_tokens=False).ids
        full = tokenizer.encode(probe, add_special_tokens=True).ids
        for begin in range(len(full) - len(plain) + 1):
            if plain and full[begin : begin + len(plain)] == plain:
                return full[:begin]
    return []


def special_tokens_of(definition: dict) -> dict[str, int]:
    """Returns a dictionary from special token to id. definition: parsed tokenizer.json."""
    return {token["content"]: token["id"] for token in definition["added_tokens"] if token["special"]}


def counter_of(tokens: Iterable[str]):
    """Returns a function that counts non-overlapping occurrences of these tokens, preferring longer tokens."""
    tokens = [token for token in tokens if token]
    if not tokens:
        return lambda text: 0
    find = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))).finditer
    return lambda text: sum(1 for _ in find(text))


def with_special_tokens_as_text(definition: str) -> str:
    """Returns a tokenizer.json with the same ids, in which special tokens never match text.

    The library's `encode_special_tokens` is not sufficient: a model that looks up full words in its vocabulary
    (Unigram, WordPiece, WordLevel, BPE with ignore_merges) would find </s>. Special tokens therefore get names that do
    not occur in text, unless the model needs them for other text.
    """
    parsed = json.loads(definition)
    _rename(parsed, set(special_tokens_of(parsed)) - needed_by_model(parsed))
    return json.dumps(parsed)


def needed_note(definition: dict) -> str | None:
    """Returns a note about special tokens that are encoded as ids despite --special_tokens text, or None."""
    tokens = sorted(token for token in needed_by_model(definition) if not _BYTE.fullmatch(token))
    if not tokens:
        return None
    more = f" and {len(tokens) - CHOICES_SHOWN:,} more" if len(tokens) > CHOICES_SHOWN else ""
    listed = ", ".join(f"'{shown(token)}'" for token in tokens[:CHOICES_SHOWN])
    return (
        "these special tokens are encoded as ids despite --special_tokens text, because the model has no other token "
        f"for their characters: {listed}{more}"
    )


def needed_by_model(definition: dict) -> set[str]:
    """Returns the special tokens without which the model would lose text: merges and single characters of BPE, bytes of
    byte_fallback, and words (not names such as </s>) that would be unknown."""
    model, special = definition["model"], set(special_tokens_of(definition))
    needed = {token for token in special if model.get("byte_fallback") and _BYTE.fullmatch(token)}
    if model["type"] != "BPE":
        words = {token for token in special - needed if token and not _NAME.fullmatch(token)}
        return needed | _unknown_without(words, special - needed, definition)
    prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
    merged = set()
    for merge in model["merges"]:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        merged |= {first, second, first + second.removeprefix(prefix)}
    characters = {token for token in special if len(token.removeprefix(prefix).removesuffix(suffix)) == 1}
    return needed | special & (merged | characters)


def _unknown_without(words: set[str], renamed: set[str], definition: dict) -> set[str]:
    """Returns the words that the model can encode only as its unknown token after these tokens are renamed."""
    from tokenizers import Tokenizer

    if not words:
        return set()
    model = definition["model"]
    vocabulary, name = model["vocab"], model.get("unk_token")
    unknown = model["unk_id"] if isinstance(vocabulary, list) else vocabulary.get(name)
    copy = json.loads(json.dumps(definition))
    _rename(copy, renamed)
    tokenize = Tokenizer.from_str(json.dumps(copy)).model.tokenize

    def is_unknown(word: str) -> bool:
        try:
            ids = [token.id for token in tokenize(word)]
        except Exception:  # raised if the model has no unknown token
            return True
        return not ids or unknown in ids

    return {word for word in words if word != name and is_unknown(word)}


def _rename(parsed: dict, tokens: set[str]) -> None:
    """Renames `tokens` in a tokenizer.json to names that do not occur in text."""
    mark = "\U0010ffff" + xxhash.xxh3_128_hexdigest(json.dumps(parsed).encode())
    renamed = {token: mark + token for token in tokens}
    model = parsed["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        model["vocab"] = [[renamed.get(token, token), score] for token, score in vocabulary]
    else:
        model["vocab"] = {renamed.get(token, token): index for token, index in vocabulary.items()}
    if "unk_token" in model:
        model["unk_token"] = renamed.get(model["unk_token"], model["unk_token"])
    for token in parsed["added_tokens"]:
        token["content"] = renamed.get(token["content"], token["content"])
    parsed["post_processor"] = None


def hash_of(definition: dict) -> str:
    """Identifies the vocabulary: XXH3 (64 bits) of "id\\ttoken\\n" of all ids, ascending. Added
    tokens take precedence."""
    vocabulary = definition["model"]["vocab"]
    if isinstance(vocabulary, list):
        tokens = {index: token for index, (token, *_) in enumerate(vocabulary)}
    else:
        tokens = {index: token for token, index in vocabulary.items()}
    tokens |= {token["id"]: token["content"] for token in definition.get("added_tokens") or ()}
    lines = (f"{index}\t{tokens[index]}\n" for index in sorted(tokens))
    return "xxh3:" + xxhash.xxh3_64_hexdigest("".join(lines).encode())
