#!/usr/bin/env python3
"""Checks flags, environment variables, ds_config.json and data columns before the scripts install or build anything.

Usage: check.py [FLAGS OF mpzero train]

Reads the scripts' variables from the environment. Prints one problem per line and exits with status 2 if there are any.
Requires only Python 3.9 and the standard library.
"""

from __future__ import annotations

import csv
import json
import operator
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from prepare import shown
from prepare.row_kinds import CHAT, KINDS, refusal_of

ROOT = Path(__file__).resolve().parents[1]
# Flags and keys from `mpzero train --help=json`, written by docs/flag_table.py.
TABLE = json.loads((ROOT / "scripts/flags.json").read_text(encoding="utf-8"))
FLAGS = {name: flag for flag in TABLE["flags"] for name in (flag["name"], flag["trainer"])}
UNKNOWN = {name: text.replace("--NAME", f"--{name}") for text, names in TABLE["unknown"].items() for name in names}
KEYS = {key: accepted for keys, accepted in TABLE["ds_config"].items() for key in keys.split()}
OTHERS = ("help", "local_rank")  # accepted flags that are not settings
TYPES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "pair": "a pair of numbers such as [0.9, 0.95]",
    "names": 'a list of names such as ["a", "b"]',
    "text": "a string",
    "object": "an object {...}",
}
LIMITS = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "more_than": ("more than", operator.gt),
    "less_than": ("less than", operator.lt),
}
NUMERALS = {"integer": "-?[0-9]{1,20}", "number": r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"}
BOOLEANS = ("true", "t", "yes", "y", "1", "false", "f", "no", "n", "0")
# Minimum of each numeric variable. The first ones have the value of the flag of this name, if it is given.
OF_FLAGS = {"MAX_STEPS": 1, "SEQ_LENGTH": 1, "CHECKPOINT_FREQ": 0, "VALIDATION_FREQ": 0}
NUMBERS = OF_FLAGS | {"MAX_DOCUMENTS": 1, "NPROC": 1, "MAX_RESTARTS": 0, "STUCK_AFTER": 1, "GRACE_PERIOD": 0}
SBATCH = ("nodes", "partition", "time", "account", "qos", "exclusive", "gpus_per_node", "ntasks_per_node", "requeue")
SINKS = ("tensorboard", "wandb", "mlflow", "trainjob")
# Variables that contain flags of a program, and the source files that define these flags.
ARGUMENTS = {"PREPARE_ARGS": "app/prepare/arguments.py", "SINK_ARGS": "app/follow.py"}
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
HDF5 = b"\x89HDF\r\n\x1a\n"


def variable(name: str) -> str:
    return os.environ.get(name, "")


def gives(flag: str) -> bool:
    return any(re.match(f"--{flag}(=|$)", word) for word in sys.argv)


def edits(a: str, b: str) -> int:
    """Returns the same distance as edit_distance() in base/words.cpp."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def nearest(word: str, known: list[str]) -> str | None:
    """Returns the same name as nearest_name() in base/words.cpp, or None."""
    best = min(known, key=lambda name: edits(word, name))
    distance = edits(word, best)
    if distance <= (1 if len(word) < 4 else 2):
        return best
    parts = [name for name in known if word in name and len(word) >= (3 if name.startswith(word) else 5)]
    return parts[0] if parts else best if distance <= len(word) // 3 else None


def problems_of_flags(words: list[str]) -> Iterator[str]:
    seen = set()
    i = 0
    while i < len(words):
        word, _, value = words[i].partition("=")
        has_value = "=" in words[i]
        i += 1
        if not word.startswith("--"):
            what = (
                "pass a token file with --train_data FILE, or a dataset with DATASET=PATH"
                if os.path.exists(word)
                else "write --name value or --name=value"
            )
            yield f'"{word}" is not a flag; {what}.'
            continue
        name = word[2:]
        flag = FLAGS.get(name)
        alone = flag is not None and (flag["type"] == "boolean" or flag["alone"])
        if not has_value and i < len(words) and not words[i].startswith("--"):
            value, has_value = words[i], True
            i += 1
        if name in OTHERS:
            continue
        if flag is None:
            yield UNKNOWN.get(name.replace("-", "_")) or unknown(name)
        elif not has_value and not alone:
            yield f"--{name} needs a value; add a value, or omit the flag."
        elif name in seen:
            yield f"--{name} is given twice; keep one of the two."
        elif has_value and (wanted := wanted_of(flag, value)):
            yield f'--{name} must be {wanted}, not "{value}".'
        seen.add(name)


def unknown(name: str) -> str:
    if name.replace("-", "_") in SBATCH:
        return f"--{name} is an option of sbatch; pass it before the script: sbatch --{name}=... train.sbatch"
    known = [name for name in FLAGS if name] + [*OTHERS, "build-only"]
    meant = nearest(name.replace("-", "_"), known)
    return f"--{name} is not a known flag" + (f"; did you mean --{meant}?" if meant else "; --help lists all flags.")


def wanted_of(flag: dict, text: str) -> str | None:
    """Returns the values that the flag accepts, or None if `text` is valid."""
    if flag["type"] == "boolean":
        return None if text.lower() in BOOLEANS else "true or false"
    if flag["type"] == "choice":
        return None if text in flag["choices"] else f"one of {', '.join(flag['choices'])}"
    if flag["type"] not in NUMERALS:
        return None if text else "a non-empty string"
    if not re.fullmatch(NUMERALS[flag["type"]], text):
        return TYPES[flag["type"]]
    value = int(text) if flag["type"] == "integer" else float(text)
    return beyond(flag, value)


def beyond(accepted: dict, value: float) -> str | None:
    """Returns the limits that the value violates, or None."""
    wrong = [
        f"{words} {accepted[key]}"
        for key, (words, holds) in LIMITS.items()
        if key in accepted and not holds(value, accepted[key])
    ]
    return " and ".join(wrong) or None


def problems_of_variables() -> Iterator[str]:
    for name, least in NUMBERS.items():
        value = variable(name)
        if name in OF_FLAGS and gives(name.lower()):
            continue
        if value and not (re.fullmatch("[0-9]{1,15}", value) and int(value) >= least):
            yield f"{name}={value} must be an integer of at least {least}, with at most 15 digits; fix or unset it."
    if variable("LOCAL_DATASET") not in ("", "true", "false"):
        yield f"LOCAL_DATASET={variable('LOCAL_DATASET')} must be true (a folder or file) or false (Hugging Face)."
    if variable("SINK") not in ("", *SINKS):
        yield f"SINK={variable('SINK')} must be one of {', '.join(SINKS)}; fix or unset it."
    for name, source in ARGUMENTS.items():
        known = re.findall(r'"--(\w+)"', (ROOT / source).read_text(encoding="utf-8"))
        for given in re.findall(r"(?:^|\s)--([\w-]+)", variable(name)):
            if given not in known:
                meant = nearest(given, known)
                yield f"{name}: --{given} is not a known flag" + (f"; did you mean --{meant}?" if meant else ".")


def problems_of_model() -> Iterator[str]:
    config, model, weights = variable("MODEL_CONFIG"), variable("MODEL_TYPE"), variable("INIT_FROM")
    if config:
        yield from problems_of_json("MODEL_CONFIG", config)
    elif variable("MODEL_IS_FROM_WEIGHTS") != "true":
        presets = sorted(path.stem for path in (ROOT / "configs/models").glob("*.json"))
        if model not in presets:
            meant = nearest(model, presets)
            also = f"did you mean {meant}? Available" if meant else "available"
            yield f"MODEL_TYPE={model} is not in configs/models; {also}: {', '.join(presets)}."
    if weights and not os.path.exists(weights) and not HUB_NAME.fullmatch(weights):
        yield f"--init_from {weights} does not exist; pass a folder, or the name of a Hugging Face model."
    yield from problems_of_json("DS_CONFIG", variable("DS_CONFIG"), problems_of_keys)


def problems_of_json(
    name: str, path: str, of_keys: Callable[[str, dict], Iterator[str]] = lambda _, __: iter(())
) -> Iterator[str]:
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8-sig"), object_pairs_hook=without_doubles)
        if not isinstance(values, dict):
            yield f"{name}={path} is not a JSON object; use another file."
        else:
            yield from of_keys(f"{name}={path}", values)
    except OSError as error:
        yield f"{name}={path} cannot be read ({error.strerror}; working directory: {os.getcwd()}); use another file."
    except (ValueError, RecursionError) as error:
        yield f"{name}={path} is not JSON: {error}; fix it."


def without_doubles(pairs: list[tuple[str, object]]) -> dict:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)} appears twice")
    return values


def problems_of_keys(where: str, values: dict, path: str = "") -> Iterator[str]:
    """Checks the keys of a ds_config.json, as io/ds_config does. `path`: name of the section with a trailing dot, or ""
    at the top level."""
    known = [key[len(path) :] for key in KEYS if key.startswith(path) and "." not in key[len(path) :]]
    for name, value in values.items():
        key = path + name
        if name not in known:
            meant = nearest(name, known)
            yield f"{where}: unknown key {key}; " + (f"did you mean {path}{meant}?" if meant else "remove it.")
        elif value is None:
            continue
        elif wanted := wanted_of_key(KEYS[key], value):
            yield f"{where}: {key} is {json.dumps(value)}{wanted}."
        elif KEYS[key]["type"] == "object":
            yield from problems_of_keys(where, value, key + ".")


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def wanted_of_key(accepted: dict, value: object) -> str | None:
    """Returns the end of the error message, after the value, or None if the key accepts the value."""
    kind = accepted["type"]
    if kind == "any" or (value == "auto" and (kind == "only" or accepted.get("auto"))):
        return None
    if kind in ("only", "disabled"):
        if kind == "disabled":
            enabled = value.get("enabled", bool(value)) if isinstance(value, dict) else value
            supported = enabled is False or enabled is None or enabled == "auto"
        else:
            supported = value == accepted["value"] and isinstance(value, bool) == isinstance(accepted["value"], bool)
        return None if supported else f", which mpzero does not support; {accepted['remedy']}"
    wrong = {
        "integer": lambda: not is_number(value) or value % 1 != 0,
        "number": lambda: not is_number(value),
        "boolean": lambda: not isinstance(value, bool),
        "choice": lambda: not isinstance(value, str) or value.lower() not in map(str.lower, accepted["choices"]),
        "pair": lambda: not isinstance(value, list) or len(value) != 2 or not all(map(is_number, value)),
        "names": lambda: not isinstance(value, list) or not all(isinstance(name, str) and name for name in value),
        "text": lambda: not isinstance(value, str),
        "object": lambda: not isinstance(value, dict),
    }
    if wrong[kind]():
        wanted = f"one of {', '.join(accepted['choices'])}" if kind == "choice" else TYPES[kind]
    else:
        wanted = next(filter(None, (beyond(accepted, one) for one in numbers_in(value))), None)
    return f"; it must be {wanted}" if wanted else None


def numbers_in(value: object) -> list[float]:
    return [one for one in (value if isinstance(value, list) else [value]) if is_number(one)]


def problems_of_data() -> Iterator[str]:
    tokenizer, data, local = variable("TOKENIZER"), variable("DATASET"), variable("LOCAL_DATASET")
    if not tokenizer and (whose := model_without_tokenizer()):
        yield f"TOKENIZER is missing: {whose}; set TOKENIZER to a Hugging Face name, a folder or 'bytes'."
    elif tokenizer and not os.path.exists(tokenizer) and not HUB_NAME.fullmatch(tokenizer):
        yield f"TOKENIZER={tokenizer} does not exist; use a folder, a Hugging Face name or 'bytes'."
    for name in ("TRAIN_DATA", "VALIDATION_DATA"):
        for path in token_files(variable(name)):
            yield from problems_of_token_file(name, path)
    if variable("TRAIN_DATA") or not data:
        return
    if os.path.exists(data) and local != "false":
        path = first_table(Path(data))
        names = columns(path) if path is not None else []
        if names and (sentence := refusal_of_columns(names, path == Path(data))):
            yield f"DATASET={data} has {sentence}"
        elif path == Path(data):
            yield from problems_of_conversations(data, names)
    elif local == "true" or not HUB_NAME.fullmatch(data):
        yield f"DATASET={data} does not exist; fix the path, or set LOCAL_DATASET=false for a Hugging Face name."


def model_without_tokenizer() -> str | None:
    """Returns the reason why no tokenizer is known, or None if the model is invalid, which another check reports."""
    model, weights = variable("MODEL_TYPE"), variable("INIT_FROM")
    if variable("MODEL_IS_FROM_WEIGHTS") == "true":
        return f"--init_from {weights} contains no tokenizer.json" if os.path.isdir(weights) else None
    if config := variable("MODEL_CONFIG"):
        return f"MODEL_CONFIG={config} has no default tokenizer"
    return f"MODEL_TYPE={model} has no default tokenizer" if (ROOT / f"configs/models/{model}.json").exists() else None


def problems_of_conversations(data: str, names: list[str]) -> Iterator[str]:
    """Checks the requirements that apply to conversations but not to plain text."""
    arguments = variable("PREPARE_ARGS")
    if re.search(r"--(format|text_(column|field))\b", arguments):
        return
    found = next(((kind, format) for kind, format in KINDS if set(kind) <= set(names)), None)
    if found is None:
        return
    where = f"DATASET={data} has conversations ({', '.join(found[0])})"
    if not re.search(r"--seq", arguments):
        length = variable("SEQ_LENGTH") or FLAGS["seq_length"]["default"]
        given = " ".join([*arguments.split(), f"--seq_length {length}"])
        yield f'{where}, which are packed into rows of a fixed length; set PREPARE_ARGS="{given}".'
    if found[1] == CHAT and variable("TOKENIZER") == "bytes" and not re.search(r"--chat_template\b", arguments):
        yield (
            f"{where}, but TOKENIZER=bytes has no chat template; set TOKENIZER and MODEL_TYPE for a chat "
            'model, e.g. TOKENIZER=Qwen/Qwen3-0.6B MODEL_TYPE=qwen3_0_6b, or PREPARE_ARGS="--chat_template FILE".'
        )


def refusal_of_columns(names: list[str], alone: bool) -> str | None:
    """Returns the end of the error message, after "DATASET=... has", or None. `alone`: the data is a single file."""
    arguments = variable("PREPARE_ARGS")
    given = [one.rpartition("=")[2] for one in re.findall(r"--text_(?:column|field)[=\s]+(\S+)", arguments)]
    if not given and (sentence := refusal_of(names)):
        return sentence
    if not alone or re.search(r"--(format|skip_empty)|['\"]", arguments):
        return None
    if not given and any(set(kind) <= set(names) for kind, _ in KINDS):
        return None
    wanted = given or ["text"]
    if any(name in names for name in wanted):
        return None
    meant = nearest(wanted[0], names)
    return f"no column '{wanted[0]}', only {', '.join(names)}; " + (
        f'did you mean PREPARE_ARGS="--text_column {meant}"?'
        if meant
        else 'choose one with PREPARE_ARGS="--text_column NAME".'
    )


def token_files(value: str) -> list[str]:
    """Returns the paths in FILE, or in a comma-separated list of FILE, NAME=FILE or FILE:WEIGHT."""
    if not value or os.path.exists(value):
        return [value] if value else []
    files = [re.sub(r"^[^=/]+=", "", item) for item in value.split(",")]
    return [re.sub(r":[0-9.eE+-]+$", "", file) for file in files]


def problems_of_token_file(name: str, path: str) -> Iterator[str]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        with open(path, "rb") as file:
            if file.read(len(HDF5)) != HDF5:
                yield f"{name}={path} is not a token file; set DATASET to prepare one from text."
    except FileNotFoundError:
        if not gives("dry_run"):  # a dry run does not need the data
            yield f"{name}={path} does not exist; use a token file, or set DATASET to prepare one."
    except OSError as error:
        yield f"{name}={path} cannot be read ({error.strerror}); fix its permissions, or use another file."


def first_table(data: Path) -> Path | None:
    try:
        files = sorted(data.iterdir()) if data.is_dir() else [data]
    except PermissionError:  # which prepare_data.py reports
        files = []
    return next((file for file in files if file.suffix in (".jsonl", ".ndjson", ".csv", ".tsv")), None)


def columns(path: Path) -> list[str]:
    """Returns the columns of the first row, or [] if the file is unreadable, which prepare_data.py reports."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix in (".csv", ".tsv"):
                return next(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","), [])
            row = json.loads(file.readline(1 << 24))
            return list(row) if isinstance(row, dict) else []
    except (OSError, ValueError, RecursionError, csv.Error):
        return []


def main() -> int:
    problems = [
        *problems_of_flags(sys.argv[1:]),
        *problems_of_variables(),
        *problems_of_model(),
        *problems_of_data(),
    ]
    for problem in problems:
        print(f"mpzero: error: {shown(problem)}", file=sys.stderr)
    return 2 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
