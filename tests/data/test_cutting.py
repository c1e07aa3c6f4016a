"""A long document is encoded in pieces: with the ids of the full text, and in memory that does not grow with it.

The oracle of the ids is the tokenizers library, which encodes the full text at once.
"""

import json
import random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .conftest import prepare_module

encoders = prepare_module("encoders")
cutting = prepare_module("cutting")
PrepareError = prepare_module("").PrepareError

WORDS = [
    "the",
    "The",
    "lamp",
    "it's",
    "I'LL",
    "don't",
    "12345678",
    "3.14",
    "über",
    "naïve",
    "e\u0301te\u0301",
    "война",
    "мир",
]
WORDS += [
    "北京",
    "你好",
    "。",
    "한국어",
    "हिन्दी",
    "ไทย",
    "👩‍👩‍👧",
    "x_y",
    "a-b",
    "!?",
    "...",
    "“quoted”",
    "</s>",
    "<s>",
    "<pad>",
]
WORDS += ["[SEP]", "[UNK]", "<tool>", "end.", "(x)", ";", "\u00a0", "ﬁ", "Å", "ﷺ", "\u0600"]
SPACES = [" "] * 12 + ["\n"] * 4 + ["  ", "\n\n", " \n", "\n  ", "\t", "\r\n", "", "   \n"]


def random_text(seed: int, size: int = 1500) -> str:
    chosen = random.Random(seed)
    return "".join(chosen.choice(WORDS) + chosen.choice(SPACES) for _ in range(size))


def trained(tokenizer: Tokenizer, trainer) -> Tokenizer:
    tokenizer.train_from_iterator([random_text(1000 + i) for i in range(20)], trainer)
    return tokenizer


SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level(*, prefix: bool = False, split: str | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split is None)]
    if split is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(split), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet))


def metaspace(scheme: str, split: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    trained(tokenizer, trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    return tokenizer


def llama2() -> Tokenizer:
    """As Llama 2's tokenizer.json: without a pre-tokenizer, a text is one word of BPE, unknown characters are bytes."""
    learned = json.loads(metaspace("always", True).to_str())["model"]
    codes = {f"<0x{byte:02X}>": len(learned["vocab"]) + byte for byte in range(256)}
    vocabulary = {**learned["vocab"], **codes}
    dropped = [token for token in vocabulary if len(token) == 1 and (ord(token) > 0x3000 or token == "\n")]
    kept = {token: index for token, index in vocabulary.items() if not any(c in token for c in dropped)}
    merges = [tuple(pair) for pair in learned["merges"] if all(part in kept for part in (*pair, "".join(pair)))]
    model = models.BPE(kept, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def gemma() -> Tokenizer:
    tokenizer = llama2()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def unigram(*, split: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trained(tokenizer, trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]"]
    trained(tokenizer, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def with_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Added tokens that are no special ones, and divide a text into sections."""
    tokens = [AddedToken("<tool>", rstrip=True), AddedToken("the", single_word=True), AddedToken("x", single_word=True)]
    tokenizer.add_tokens([*tokens, AddedToken("mir\nx"), AddedToken("你好", lstrip=True)])
    return tokenizer


LLAMA3 = encoders.LLAMA3_PATTERN
TOKENIZERS = {
    "byte-level": byte_level,
    "byte-level of Llama 3": lambda: byte_level(split=LLAMA3),
    "byte-level with a space before texts": lambda: byte_level(prefix=True),
    "Metaspace": lambda: metaspace("always", True),
    "Metaspace, first": lambda: metaspace("first", True),
    "Metaspace, never": lambda: metaspace("never", True),
    "Metaspace without words": lambda: metaspace("first", False),
    "Llama 2": llama2,
    "Gemma": gemma,
    "Unigram": unigram,
    "WordPiece": word_piece,
}
WITH_TOKENS = {f"{name}, added tokens": lambda make=make: with_tokens(make()) for name, make in TOKENIZERS.items()}


@pytest.fixture(scope="module")
def made():
    """The tokenizer of a name, made once."""
    known = {}

    def get(name: str) -> Tokenizer:
        if name not in known:
            known[name] = {**TOKENIZERS, **WITH_TOKENS}[name]()
        return known[name]

    return get


def encoder_of(tokenizer: Tokenizer, folder, special_tokens: str):
    tokenizer.save(str(folder / "tokenizer.json"))
    eos = "[SEP]" if tokenizer.token_to_id("[SEP]") is not None else "</s>"
    return encoders.load_encoder(str(folder), eos, None, "false", special_tokens)


def ids_in_pieces(encoder, text: str, size: int) -> tuple[list[int], int]:
    """-> (ids, number of pieces)"""
    pieces = list(cutting.cut([text], encoder.cuts, size))
    assert "".join(piece.text for piece in pieces) == text
    ids, _ = encoder.function()([(piece.before, piece.text) for piece in pieces])
    return [int(token) for part in ids for token in part], len(pieces)


@pytest.mark.parametrize("special_tokens", ["text", "ids"])
@pytest.mark.parametrize("name", [*TOKENIZERS, *WITH_TOKENS])
def test_ids_of_pieces_are_those_of_the_full_text(made, tmp_path, monkeypatch, name, special_tokens):
    monkeypatch.setattr(encoders, "SHORT", 5)
    encoder = encoder_of(made(name), tmp_path, special_tokens)
    # Special tokens as text: tests/data/test_special_tokens.py
    whole = encoders.encoding_tokenizer(encoder.definition, special_tokens)
    # Both kinds have texts of their own.
    for seed in range(6) if special_tokens == "text" else range(6, 12):
        text = random_text(seed)
        ids, count = ids_in_pieces(encoder, text, random.Random(seed).choice([1, 10, 100]))
        assert count > 5, "nothing was cut"
        assert ids == whole.encode(text, add_special_tokens=False).ids


def test_a_tokenizer_that_weighs_the_full_text_is_not_cut(tmp_path):
    """Unigram without words: the best division of a text depends on all of it. And a step that this program does not
    know."""
    assert encoder_of(unigram(split=False), tmp_path, "text").cuts.patterns == ()
    unknown = byte_level()
    unknown.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.FixedLength(5), unknown.pre_tokenizer])
    assert encoder_of(unknown, tmp_path, "text").cuts.patterns == ()


def test_tokens_that_lie_across_a_place_forbid_to_cut_there(tmp_path):
    tokenizer = byte_level()
    free = encoder_of(tokenizer, tmp_path, "text").cuts.patterns
    tokenizer.add_tokens([AddedToken("a b", normalized=False)])
    no_space = encoder_of(tokenizer, tmp_path, "text").cuts.patterns
    assert len(no_space) == len(free) - 1
    ids, _ = ids_in_pieces(encoder_of(tokenizer, tmp_path, "text"), "a b\n" * 50, 3)
    assert ids == tokenizer.encode("a b\n" * 50).ids


@pytest.mark.parametrize("sizes", [[1], [7, 1, 300], [5000]])
def test_cuts_do_not_depend_on_how_a_document_is_read(sizes):
    text = random_text(3)
    cuts = prepare_module("boundaries").BYTES
    parts, begin = [], 0
    while begin < len(text):
        size = sizes[len(parts) % len(sizes)]
        parts.append(text[begin : begin + size])
        begin += size
    assert list(cutting.cut(parts, cuts, 64)) == list(cutting.cut([text], cuts, 64))


def test_a_document_that_can_be_cut_nowhere_is_refused_from_a_size_on():
    with pytest.raises(PrepareError, match=r"a\.txt has more than 4,096 characters") as caught:
        list(cutting.cut(["words " * 100] * 10, cutting.Cuts(), 64, most=4096, name="a.txt"))
    assert "--document_separator" in str(caught.value)
    assert [piece.text for piece in cutting.cut(["x" * 4096], cutting.Cuts(), 64, most=4096)] == ["x" * 4096]
