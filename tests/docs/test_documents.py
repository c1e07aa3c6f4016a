"""What the documents name exists: linked files and headings, paths, flags, keys of ds_config.json."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from documents import ROOT, anchors, code_blocks, documents, in_backticks, links, prose, section, text_of, tracked_files

sys.path.insert(0, str(ROOT / "docs"))

import draw_rooms
import flag_table

BUILD = Path(os.environ.get("BUILD_DIR", ROOT / "build"))
PROGRAMS = {
    "mpzero train": [str(BUILD / "bin/mpzero"), "train"],
    "mpzero checkpoint": [str(BUILD / "bin/mpzero"), "checkpoint"],
    "mpzero doctor": [str(BUILD / "bin/mpzero"), "doctor"],
    "mpzero generate": [str(BUILD / "bin/mpzero"), "generate"],
    "mpzero plan": [str(BUILD / "bin/mpzero"), "plan"],
    "zero_to_fp32": [str(BUILD / "bin/zero_to_fp32")],
}
needs_programs = pytest.mark.skipif(
    not all(Path(words[0]).exists() for words in PROGRAMS.values()), reason="mpzero and zero_to_fp32 are not built"
)
# Flags of our own whose programs have no --help that lists them, by the files that read them.
SOURCES_OF_FLAGS = [
    *ROOT.glob("app/*.py"),
    ROOT / "app/prepare/arguments.py",
    *ROOT.glob("app/plan/*_command.cpp"),
    *ROOT.glob("bench/*.py"),
    ROOT / "kubernetes/manifests/command.py",
    ROOT / "tests/faults/main.cpp",
    ROOT / "test.sh",
    ROOT / "singlenode/train-singlenode.sh",
]
# Of other people's programs.
FOREIGN_FLAGS = {
    "sbatch, srun, scancel": "array auto-resume batch chdir comment error exclusive gpu-bind gpus gpus-per-node mem "
    "gpus-per-task gres job-name kill-on-bad-exit mpi no-requeue nodes ntasks partition signal switches "
    "test-only",
    "docker": "build-arg device file ipc password-stdin privileged shm-size tag username",
    "kubectl": "filename follow for from-file kustomize output patch selector timeout type watch",
    "helm": "create-namespace install namespace values version wait",
    "eksctl": "config-file",
    "pcluster": "cluster-configuration cluster-name",
    "base64": "decode",
    "Pyxis": "container-image container-mounts",
    "cmake, ctest": "build install prefix preset target test-dir",
    "uv, aws": "frozen inexact "
    "aws-service-name capabilities file-system-ids file-system-type file-system-type-version filters group "
    "group-name instance-ids lustre-configuration name output parameter-overrides policy-arn query recursive "
    "repository-name resources role-name security-group-ids stack-name storage-capacity storage-type strategy "
    "subnet-ids tags template-file",
    "deepspeed": "hostfile",
    "nvidia-smi": "format query-gpu",
    "programs that bench/RESULTS.md cites from the Git history": "gigabits levels milliseconds rows window",
}


def known_flags() -> set[str]:
    flags = set(re.findall(r"--([a-z][\w-]*)", "".join(help_of(name) for name in PROGRAMS)))
    for path in SOURCES_OF_FLAGS:
        flags |= set(re.findall(r"--([a-z][\w-]*)", path.read_text()))
    return flags | {name for names in FOREIGN_FLAGS.values() for name in names.split()}


@cache
def help_of(name: str) -> str:
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [*PROGRAMS[name], "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def top_folders() -> set[str]:
    return {path.split("/")[0] for path in tracked_files() if "/" in path}


def missing_path(word: str) -> bool:
    """Whether a word in backticks names a file of the repository that is not there."""
    word = word.rstrip("/")
    if not re.fullmatch(r"[\w.*/-]+", word):
        return False
    if built := re.fullmatch(r"build/(?:bin|tests)/(\w+)", word):
        return built.group(1) not in executables()
    if "/" in word and word.split("/")[0] in top_folders():
        return not any(True for _ in ROOT.glob(word)) if "*" in word else word not in tracked_files()
    if "/" not in word and re.search(r"\w\.(cpp|hpp|cu|cuh|cmake|sh|sbatch|py)$", word) and "*" not in word:
        return word not in {Path(path).name for path in tracked_files()} | {"train.py", "zero_to_fp32.py"}
    return False


@cache
def executables() -> set[str]:
    """Names of the programs and tests that CMake builds."""
    call = re.compile(r"(?:add_executable|mpzero_add_tests|mpzero_add_bench\w*)\(\s*(\w+)")
    lists = [ROOT / path for path in tracked_files() if path.endswith("CMakeLists.txt")]
    return {name for path in lists for name in call.findall(path.read_text())}


def ds_config_sources() -> str:
    return "".join(path.read_text() for path in sorted((ROOT / "io/ds_config").glob("*.cpp")))


def keys_that_are_read() -> set[str]:
    """Keys of ds_config.json, from the calls of ObjectReader that ask for them."""
    call = re.compile(
        r"(?:->|\.)(?:read|read_text|section|only|harmless|not_acted_on|refuse_enabled)\(\s*(\{[^}]*\}|\"\w+\")"
    )
    source = ds_config_sources()
    keys = {key for found in call.findall(source) for key in re.findall(r'"(\w+)"', found)}
    loops = re.findall(r"for \(const (?:char\*|Observer&) \w+ :\s*\{(.*?)\}\) \{", source, re.DOTALL)
    return keys | {key for loop in loops for key in re.findall(r'"(\w+)"', loop)}


@pytest.mark.parametrize("document", documents())
def test_links_lead_to_files_and_headings(document: str) -> None:
    for link in links(text_of(document)):
        target = os.path.normpath(Path(document).parent / link.target) if link.target else document
        assert target in tracked_files(), f"{document} links to {link.target}, which does not exist"
        if link.anchor:
            assert link.anchor in anchors(text_of(target)), f"{document}: {target} has no heading #{link.anchor}"


@pytest.mark.parametrize("document", documents())
def test_paths_in_backticks_exist(document: str) -> None:
    missing = [word for word in in_backticks(text_of(document)) if missing_path(word)]
    assert missing == [], f"{document} names files that do not exist"


def test_documents_in_messages_of_the_programs_exist() -> None:
    """Sentences for users and comments point to pages."""
    sources = [path for path in tracked_files() if path.endswith((".cpp", ".hpp", ".py", ".sh", ".sbatch", ".txt"))]
    for path in sorted(sources):
        for page in re.findall(r"\b(?:docs|bench)/[\w-]+\.md\b", (ROOT / path).read_text(errors="replace")):
            assert page in tracked_files(), f"{path} names {page}"


@needs_programs
@pytest.mark.parametrize("document", documents())
def test_flags_exist(document: str) -> None:
    words = " ".join([*in_backticks(text_of(document)), *code_blocks(text_of(document))])
    flags = set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", words))
    assert sorted(flags - known_flags()) == [], f"{document} names flags that no program has"


@needs_programs
def test_the_table_of_flags_is_the_programs() -> None:
    page = text_of("docs/configuration.md")
    table = page.split(flag_table.BEGIN)[1].split(flag_table.END)[0]
    expected = flag_table.tables(flag_table.program_help())
    assert table.strip() == expected.strip(), "run docs/flag_table.py"


@needs_programs
def test_the_scripts_have_the_flags_of_the_program() -> None:
    text = flag_table.program_help()
    assert flag_table.TABLE.read_text() == flag_table.check_table(text), "run docs/flag_table.py"
    assert flag_table.COMPLETION.read_text() == flag_table.completion(text), "run docs/flag_table.py"


@needs_programs
def test_every_flag_of_the_help_is_in_the_table() -> None:
    flags = flag_table.flag_names(flag_table.program_help())
    assert flags | {"help"} == set(re.findall(r"^  --(\w+)", help_of("mpzero train"), re.MULTILINE))
    assert len(flags) > 60


FAULTS = {
    "kHost": "host",
    "kShared": "shared",
    "kFolder": "folder",
    "kJob": "job",
}


def test_every_check_of_the_doctor_is_in_its_table() -> None:
    """With whose fault a failure is."""
    source = (ROOT / "app/machine/finding.hpp").read_text()
    checks = {name: FAULTS[fault] for name, fault in re.findall(r'^    \{"(\w+)", Fault::(\w+)', source, re.MULTILINE)}
    rows = section(text_of("docs/doctor.md"), "Checks").splitlines()
    documented = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", "\n".join(rows), re.MULTILINE))
    assert len(checks) >= 29
    assert documented == checks


@needs_programs
def test_the_comparison_of_plans_is_the_programs() -> None:
    """As many configurations fit as the page says."""
    blocks = code_blocks(section(text_of("docs/plan.md"), "Comparing"))
    words = shlex.split(blocks[0].replace("\\\n", " ").replace("--prices prices.json", ""))
    result = subprocess.run(
        [*PROGRAMS["mpzero plan"], *words[2:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    summary = re.compile(r"^\d+ configurations .* of which \d+ fit", re.MULTILINE)
    assert summary.findall(result.stdout) == summary.findall(blocks[1]), "copy the table into docs/plan.md"


def test_every_key_of_ds_config_is_documented() -> None:
    # What a tool of monitoring is told, of which the page says "all of their keys".
    page = section(text_of("docs/configuration.md"), "ds_config.json")
    documented = {part for word in in_backticks(page) for part in re.split(r"[.:\s]", word)}
    documented |= {key.removeprefix("stage3_") for key in documented if key.startswith("stage3_")}
    keys = keys_that_are_read()
    assert len(keys) > 100
    undocumented = keys - documented - documented_as_a_group()
    assert sorted(undocumented) == []


def test_the_scripts_know_every_key_that_is_read() -> None:
    keys = set(re.split("[ .]", " ".join(json.loads(flag_table.TABLE.read_text())["ds_config"])))
    assert sorted(keys_that_are_read() - keys - {"stage3_"}) == [], (
        "complete ds_config_keys() in io/ds_config/ds_config.cpp"
    )


def test_every_documented_key_of_ds_config_is_known() -> None:
    page = section(text_of("docs/configuration.md"), "ds_config.json")
    source = ds_config_sources()
    rows = [line for line in page.splitlines() if line.startswith("| `") and "---" not in line]
    keys = [key for row in rows for key in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert len(keys) > 40
    for key in keys:
        for part in key.split("."):
            name = part.removeprefix("stage3_")
            assert f'"{part}"' in source or f'"{name}"' in source, f"{key} is no key that mpzero reads"


def documented_as_a_group() -> set[str]:
    """Keys of sections of which the page says that none has an effect: fp16 and activation checkpointing."""
    source = ds_config_sources()
    lists = re.findall(r"fp16->harmless\(\{(.*?)\}\)", source, re.DOTALL)
    lists += re.findall(r"section->not_acted_on\(\{(\"partition_activations\".*?)\}", source, re.DOTALL)
    assert len(lists) == 2
    return {key for one in lists for key in re.findall(r'"(\w+)"', one)} | {"enabled"}


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    assert (ROOT / "docs/rooms.svg").read_text() == draw_rooms.picture(), "run docs/draw_rooms.py"


def test_every_room_is_described() -> None:
    described = set(in_backticks(text_of("docs/architecture.md")))
    rooms = draw_rooms.read_uses()
    assert sorted(room for room in rooms if room not in described and f"{room}/" not in described) == []


def test_the_korean_walk_through_has_the_same_commands() -> None:
    """Except for the remarks after #, which are translated; links and numbers, too, are those of the README."""
    english, korean = text_of("README.md"), text_of("docs/README.ko.md")

    def commands(text: str) -> list[str]:
        return [line.split("#")[0].rstrip() for block in code_blocks(text) for line in block.splitlines()]

    def numbers(text: str) -> list[str]:
        return re.findall(r"\d[\d,.]*\d", prose(text).split("H200")[1].split("RESULTS.md")[0])

    assert commands(korean) == commands(english)
    assert numbers(korean) == numbers(english)
    places = {(os.path.normpath(Path("docs") / link.target), link.anchor) for link in links(korean)}
    assert places - {("README.md", "")} == {(link.target, link.anchor) for link in links(english)} - {
        ("docs/README.ko.md", "")
    }


def test_a_sentence_begins_after_a_full_stop() -> None:
    """'; Without' was two sentences once."""
    found = {
        name: re.findall(r";\s+(?:Without|With|The|This|It|A|An|In|On|For|Where|What|Each|If)\b", prose(text_of(name)))
        for name in documents()
    }
    assert {name: places for name, places in found.items() if places} == {}


def test_the_numbers_of_the_readme_are_measured_ones() -> None:
    measured = set(re.findall(r"\d[\d,.]*", text_of("bench/RESULTS.md")))
    rows = [row for row in section(text_of("README.md"), "Performance").splitlines() if row.startswith("|")][2:]
    numbers = {number for row in rows for cell in row.split("|")[3:] for number in re.findall(r"\d[\d,.]*\d", cell)}
    assert len(numbers) >= 14
    assert sorted(numbers - measured) == []


def test_no_user_needs_uv_in_path() -> None:
    """The scripts install it into .venv-uv where there is none. What is advised runs with .venv's own Python."""
    sources = [
        ROOT / name
        for name in tracked_files()
        if re.match(r"(app|base|io|model|parallel|scripts)/|docs/.*md|README", name)
    ]
    naming = [
        path for path in sources if path.is_file() and re.search(r"\buv (run|pip)\b", path.read_text(errors="replace"))
    ]
    assert naming == []


# Variables that the scripts read and that are no setting of a run.
OTHER_VARIABLES = {
    "others'": "CUDA_VISIBLE_DEVICES GOMP_SPINCOUNT KUBERNETES_SERVICE_HOST LANG LD_LIBRARY_PATH NCCL_SOCKET_IFNAME "
    "OMP_NUM_THREADS OMP_WAIT_POLICY SBATCH_PARTITION SBATCH_SIGNAL SLURMD_NODENAME TEMP TMP TMPDIR UV_NATIVE_TLS "
    "UV_SYSTEM_CERTS",
    "for tests": "BUILD_DIR CUDA_PARENT EFA_PARENT HYPERPOD_FOLDER INFINIBAND_CLASS INFINIBAND_DEVICES LIB64 "
    "NETWORK_TABLES NVIDIA_DEVICES PROCESS_STATUS SHARED_MEMORY",
}
OTHER_PREFIXES = ("OMPI_", "SLURM_", "MPZERO_")  # those of mpzero are the scripts' own, but for:
SETTINGS_OF_MPZERO = {"MPZERO_GPU_ARCHITECTURES"}


def variables_read(text: str) -> set[str]:
    """Where the script does not know whether a variable is set, or gives it a default."""
    name = "([A-Z][A-Z0-9_]*)"
    text = re.sub(r"^ *#.*", "", text, flags=re.MULTILINE)
    found = set(re.findall(r"\$\{" + name + ":?[-=+?]", text)) | set(re.findall(rf"\bsetting {name} ", text))
    for names in re.findall(r"^MPZERO_PATH_VARIABLES=\((.*)\)$", text, re.MULTILINE):
        found |= set(names.split())
    others = {name for names in OTHER_VARIABLES.values() for name in names.split()}
    return {name for name in found - others if not name.startswith(OTHER_PREFIXES) or name in SETTINGS_OF_MPZERO}


def test_every_variable_of_the_scripts_is_documented() -> None:
    documented = documented_in("Variables")
    scripts = [*ROOT.glob("scripts/*.sh"), ROOT / "sbatch/train.sbatch", ROOT / "singlenode/train-singlenode.sh"]
    variables = set().union(*(variables_read(script.read_text()) for script in scripts))
    assert len(variables) >= 25
    assert sorted(variables - documented) == []
    assert sorted(documented - variables) == []


def documented_in(heading: str) -> set[str]:
    rows = section(text_of("docs/slurm.md"), heading).splitlines()
    return {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1] if row[:1] == "|" else "")}


def test_every_variable_of_the_network_experiment_is_documented() -> None:
    read = variables_read((ROOT / "sbatch/network_experiment.sbatch").read_text())
    own = documented_in("Comparing networks and layouts")
    assert own <= read and len(own) >= 8
    assert sorted(read - own - documented_in("Variables")) == []


def test_the_scripts_list_the_same_variables_where_both_have_them() -> None:
    lists = [
        re.findall(r"^([A-Z_]+)=\$\{\1:-", (ROOT / script).read_text(), re.MULTILINE)
        for script in ("sbatch/train.sbatch", "singlenode/train-singlenode.sh")
    ]
    both = set(lists[0]) & set(lists[1])
    assert len(both) >= 16
    assert [name for name in lists[0] if name in both] == [name for name in lists[1] if name in both]
