#!/usr/bin/env python3
"""Writes the conversations in this folder, and trains their tokenizer.

Each answer has three lines, which show at a glance whether a model has learned the format:

    Topic: sums
    Answer: 7
    In full: 3 plus 4 is 7.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SYSTEM = "Answer in three lines: Topic, Answer, In full."
HELD_OUT = 9  # every ninth conversation is for validation
WORDS = 765  # vocabulary size without the three special tokens
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# name: legs, sound, young
ANIMALS = {
    "dog": (4, "barks", "puppy"),
    "cat": (4, "meows", "kitten"),
    "cow": (4, "moos", "calf"),
    "sheep": (4, "bleats", "lamb"),
    "horse": (4, "neighs", "foal"),
    "duck": (2, "quacks", "duckling"),
    "hen": (2, "clucks", "chick"),
    "goose": (2, "honks", "gosling"),
    "frog": (4, "croaks", "tadpole"),
    "lion": (4, "roars", "cub"),
    "pig": (4, "grunts", "piglet"),
    "bee": (6, "buzzes", "larva"),
    "goat": (4, "bleats", "kid"),
    "wolf": (4, "howls", "pup"),
}
CAPITALS = (
    "France Paris, Spain Madrid, Italy Rome, Germany Berlin, Austria Vienna, Poland Warsaw, Norway Oslo, "
    "Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Ireland Dublin, Portugal Lisbon, Greece Athens, "
    "Hungary Budapest, Japan Tokyo, China Beijing, India Delhi, Egypt Cairo, Kenya Nairobi, Peru Lima, Chile Santiago, "
    "Cuba Havana, Canada Ottawa, Russia Moscow"
)
OPPOSITES = (
    "hot cold, big small, old new, fast slow, high low, long short, dark light, wet dry, hard soft, full empty, "
    "early late, open closed, rich poor, strong weak, thick thin, happy sad, near far, clean dirty, loud quiet, "
    "deep shallow, cheap expensive, heavy light, left right, first last, wide narrow, sweet sour, true false"
)
PLURALS = (
    "mouse mice, child children, foot feet, tooth teeth, man men, woman women, goose geese, leaf leaves, wolf wolves, "
    "knife knives, baby babies, city cities, box boxes, bus buses, fox foxes, dish dishes, hero heroes, key keys"
)
COLOURS = (
    "grass green, snow white, blood red, coal black, honey gold, milk white, ink blue, chocolate brown, mud brown, "
    "ash grey, mustard yellow, spinach green"
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "January February March April May June July August September October November December"


def pairs(text: str) -> list[list[str]]:
    return [pair.split() for pair in text.split(", ")]


def facts() -> list[tuple[str, str, str, str]]:
    """(topic, question, answer, sentence)"""
    found = []
    for a in range(1, 13):
        for b in range(1, 13):
            question = f"What is {a} plus {b}?" if (a + b) % 2 else f"How much is {a} + {b}?"
            found.append(("sums", question, str(a + b), f"{a} plus {b} is {a + b}."))
    for n in range(1, 60):
        found.append(("numbers", f"Which number comes after {n}?", str(n + 1), f"After {n} comes {n + 1}."))
    for name, (legs, sound, young) in ANIMALS.items():
        found += [
            ("animals", f"How many legs does a {name} have?", str(legs), f"A {name} has {legs} legs."),
            ("animals", f"What does a {name} do?", sound, f"A {name} {sound}."),
            ("animals", f"What is a young {name} called?", young, f"A young {name} is called {young}."),
        ]
    for country, city in pairs(CAPITALS):
        found.append(("capitals", f"What is the capital of {country}?", city, f"The capital of {country} is {city}."))
    for one, other in pairs(OPPOSITES):
        found.append(("opposites", f"What is the opposite of {one}?", other, f"The opposite of {one} is {other}."))
    for one, more in pairs(PLURALS):
        found.append(("plurals", f"What is the plural of {one}?", more, f"One {one}, two {more}."))
    for thing, colour in pairs(COLOURS):
        found.append(("colours", f"Which colour is {thing}?", colour, f"The colour of {thing} is {colour}."))
    for topic, names in (("days", DAYS.split()), ("months", MONTHS.split())):
        for before, after in zip(names, names[1:] + names[:1], strict=True):
            found += [
                (topic, f"What comes after {before}?", after, f"After {before} comes {after}."),
                (topic, f"What comes before {after}?", before, f"Before {after} comes {before}."),
            ]
    return found


def conversations() -> list[list[dict[str, str]]]:
    """Returns the facts in a fixed random order. Every fifth conversation has two questions, every fourth a system
    turn.
    """
    order = facts()
    random.Random(7).shuffle(order)
    made, index = [], 0
    while index < len(order):
        count = 2 if len(made) % 5 == 0 else 1
        messages = [{"role": "system", "content": SYSTEM}] if len(made) % 4 == 0 else []
        for topic, question, answer, sentence in order[index : index + count]:
            content = f"Topic: {topic}\nAnswer: {answer}\nIn full: {sentence}"
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": content}]
        made.append(messages)
        index += count
    return made


def train_tokenizer(texts: list[str]):
    """Trains a byte-level BPE tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for part in ("conversations", "tokenizer"):
        (folder / part).mkdir(exist_ok=True)
    made = conversations()
    for name, part in (
        ("train", [one for i, one in enumerate(made) if i % HELD_OUT]),
        ("validation", made[::HELD_OUT]),
    ):
        lines = (json.dumps({"messages": messages}) + "\n" for messages in part)
        (folder / f"conversations/{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    texts = [f"{message['role']}\n{message['content']}\n" for messages in made for message in messages]
    train_tokenizer(texts).save(str(folder / "tokenizer/tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
