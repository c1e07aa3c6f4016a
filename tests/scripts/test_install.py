"""install.sh by function, on folders that look like the machine in question."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from results import refused

PACKAGES = '"here|true" "gone|false"'


def without(checkout, name: str) -> None:
    """The shell's `command -v` finds programs in checkout.bin first; these refuse their service."""
    checkout.program(checkout.bin / name, "#!/bin/bash\necho no >&2\nexit 1\n")


def test_missing_packages_are_named_in_one_sentence_where_no_rights_are(checkout):
    without(checkout, "sudo")
    result = checkout.shell(f"install_rights() {{ return 1; }}; install_packages {PACKAGES}")
    refused(result, "sudo apt-get install gone'")
    assert "here" not in result.stderr


def test_missing_packages_are_installed_and_only_those(checkout):
    checkout.program(checkout.bin / "apt-get", '#!/bin/bash\nprintf "%s\\n" "$*" >>"$RECORD/calls"\n')
    result = checkout.shell(f"install_rights() {{ echo env; }}; install_packages {PACKAGES}")
    assert result.returncode == 0, result.stderr
    assert checkout.calls().splitlines() == ["update -q", "install -q -y --no-install-recommends gone"]
    assert checkout.shell('install_packages "here|true"').returncode == 0
    assert len(checkout.calls().splitlines()) == 2


def test_without_debians_packages_headers_count(checkout):
    packages = '"there|has_package there || has_header cstdlib" "gone|has_package gone || has_header no/such.h"'
    # No header speaks for a package of Debian's.
    assert checkout.shell(f"missing_packages {packages}").stdout.split() == ["there", "gone"]
    elsewhere = 'command() { [[ $2 != dpkg-query ]] && builtin command "$@"; }; '
    assert checkout.shell(f"{elsewhere} missing_packages {packages}").stdout.split() == ["gone"]


def test_a_library_of_headers_is_found_by_a_header(checkout):
    packages = '"there|includes cstdlib" "gone|includes no/such.h"'
    assert checkout.shell(f"missing_packages {packages}").stdout.split() == ["gone"]


def test_the_efa_installers_libfabric_counts(checkout, efa):
    command = 'has_package() { return 1; }; missing_packages "${MPZERO_BUILD_PACKAGES[@]}" | grep fabric || true'
    variables = {"EFA_PARENT": str(efa / "opt")}
    assert checkout.shell(command, **variables).stdout.strip() == "libfabric-dev"
    header = efa / "opt/amazon/efa/include/rdma/fabric.h"
    header.parent.mkdir(parents=True)
    header.write_text("")
    assert checkout.shell(command, **variables).stdout == ""


def test_a_failed_installation_ends_the_script(checkout):
    checkout.program(
        checkout.bin / "apt-get", '#!/bin/bash\n[[ $1 == update ]] || { echo "Unable to locate"; exit 100; }\n'
    )
    result = checkout.shell(f"install_rights() {{ echo env; }}; install_packages {PACKAGES}; echo went on")
    assert result.returncode == 2
    assert "gone" in result.stderr and "went on" not in result.stdout
    assert "Unable to locate" in (checkout.root / "logs/apt.log").read_text()


def test_a_long_installation_shows_its_last_line_on_a_terminal(checkout):
    """And nothing elsewhere; when it is over, the line is gone, and its status is the command's."""
    step = r'echo first; printf "\e[2Jsecond\n"; '
    step += "for ((i = 0; i < 600; ++i)); do [[ ! -e $RECORD/seen ]] || exit 3; sleep 0.1; done"
    command = f"run_watched logs/step.log bash -c {shlex.quote(step)} || echo status $?"
    (checkout.record / "seen").touch()
    assert checkout.shell(command).stdout == "status 3\n" and checkout.shell(command).stderr == ""
    assert (checkout.root / "logs/step.log").read_text() == "first\n\x1b[2Jsecond\n"
    (checkout.record / "seen").unlink()
    main, terminal = os.openpty()
    environment = checkout.environment({"MPZERO_ROOT": str(checkout.root), "TERM": "dumb"})
    words = ["bash", "-c", f"set -euo pipefail; source scripts/common.sh; {command}"]
    with subprocess.Popen(
        words, cwd=checkout.root, env=environment, stdout=subprocess.PIPE, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while b" s  ?[2Jsecond" not in shown:
            shown += os.read(main, 1000)
        (checkout.record / "seen").touch()
        with suppress(OSError):  # the terminal's other end is closed
            while more := os.read(main, 1000):
                shown += more
        assert process.communicate()[0] == b"status 3\n"
    os.close(main)
    assert shown.endswith(b"\r\x1b[K")


def test_a_uv_shim_that_does_not_run_is_not_taken(checkout):
    without(checkout, "uv")
    checkout.program(checkout.home / ".local/bin/uv", "#!/bin/bash\nexit 0\n")
    assert checkout.shell("find_uv").stdout.strip() == str(checkout.home / ".local/bin/uv")


def test_groups_already_synced_are_not_synced_again(checkout):
    checkout.program(checkout.bin / "uv", '#!/bin/bash\nprintf "uv %s\\n" "$*" >>"$RECORD/calls"\n')
    assert checkout.shell("sync_environment cuda").returncode == 0
    assert checkout.calls() == ""
    assert checkout.shell("sync_environment cuda dev").returncode == 0
    assert checkout.shell("sync_environment cuda").returncode == 0
    assert checkout.shell("sync_environment dev").returncode == 0
    assert checkout.calls().count("uv sync") == 1


def test_a_build_without_gpu_kernels_leaves_out_the_libraries_for_gpus(checkout):
    (checkout.root / ".venv/mpzero-synced").unlink()
    checkout.program(checkout.bin / "uv", '#!/bin/bash\nprintf "uv %s\\n" "$*" >>"$RECORD/calls"\n')
    result = checkout.shell('sync_environment "$(libraries_for 0)"', MPZERO_GPU_ARCHITECTURES="none")
    assert "without GPU libraries" in result.stdout, result.stderr
    sync = [line for line in checkout.calls().splitlines() if " sync " in line]
    assert len(sync) == 1 and "--group cuda" in sync[0] and "--no-install-package nvidia-cublas" in sync[0]
    assert checkout.shell("sync_environment cpu").stdout == ""
    # A build with GPU kernels needs them, and what has them serves one without.
    checkout.shell('sync_environment "$(libraries_for 0)"', MPZERO_GPU_ARCHITECTURES="90")
    sync = [line for line in checkout.calls().splitlines() if " sync " in line]
    assert len(sync) == 2 and "--no-install-package" not in sync[1]
    assert checkout.shell("sync_environment cpu").stdout == ""


def test_the_libraries_for_gpus_are_those_of_the_lock_file(checkout):
    # The runtime and CUPTI are those that libtorch_cpu.so itself loads, and its headers include those of crt.
    needed = {"nvidia-cuda-crt", "nvidia-cuda-cupti", "nvidia-cuda-runtime"}
    lock = tomllib.loads((Path(__file__).resolve().parents[2] / "uv.lock").read_text())
    names = {package["name"] for package in lock["package"]}
    of_gpus = {name for name in names if name.startswith("nvidia-") or name == "triton"} - needed
    listed = checkout.shell('printf "%s\\n" "${MPZERO_GPU_WHEELS[@]}"').stdout.split()
    assert set(listed) == of_gpus - {"nvidia-ml-py"} and needed <= names


RESTORING_UV = """#!/bin/bash
printf "uv %s\n" "$*" >>"$RECORD/calls"
[[ $1 != sync ]] || mkdir -p .venv/lib/python3.11/site-packages/nvidia_cuda_nvcc-13.0.88.dist-info
"""


def test_the_packages_are_the_same_in_every_locale(checkout):
    for name in ("Zope-1.dist-info", "accelerate-1.dist-info"):
        (checkout.package.parent / name).mkdir()
    # Most languages sort capitals next to small letters, C puts them first.
    language = """#!/bin/bash
[[ ${LC_ALL:-${LANG:-C}} == C ]] || set -- --ignore-case "$@"
LC_ALL=C exec /usr/bin/sort "$@"
"""
    checkout.program(checkout.bin / "sort", language)
    hashes = {checkout.shell("installed_hash", **locale).stdout for locale in ({"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"})}
    assert len(hashes) == 1


def test_packages_that_uv_took_away_are_installed_again(checkout):
    checkout.program(checkout.bin / "uv", RESTORING_UV)
    assert checkout.shell("sync_environment cuda dev").returncode == 0
    assert checkout.calls().count("uv sync") == 1
    # What a plain `uv sync` does to the packages of groups that are not the default.
    checkout.package.rmdir()
    result = checkout.shell("sync_environment cuda")
    assert result.returncode == 0 and checkout.package.is_dir(), result.stderr
    assert "The packages in .venv have changed" in result.stdout
    # The groups that other scripts had asked for come back, too.
    assert "--group dev" in checkout.calls().splitlines()[-1]
    assert checkout.shell("sync_environment cuda dev").stdout == ""
    assert checkout.calls().count("uv sync") == 2


def test_a_stamp_of_an_earlier_release_is_not_believed(checkout):
    stamp = checkout.root / ".venv/mpzero-synced"
    stamp.write_text(stamp.read_text().splitlines()[0] + "\n")
    checkout.program(checkout.bin / "uv", RESTORING_UV)
    assert checkout.shell("sync_environment cuda").returncode == 0
    assert checkout.calls().count("uv sync") == 1


def test_a_plain_sync_keeps_what_the_build_needs():
    settings = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert set(settings["tool"]["uv"]["default-groups"]) >= {"data", "cuda"}


def make_wheel(folder, version: str) -> str:
    """A uv of this version for any machine, as pip takes it. -> its checksum"""
    (folder / "wheels").mkdir()
    path = folder / f"wheels/uv-{version}-py3-none-any.whl"
    info = f"uv-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        program = zipfile.ZipInfo(f"uv-{version}.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, f"#!/bin/bash\necho uv {version}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("known", [True, False])
def test_a_uv_with_another_checksum_is_not_installed(checkout, known):
    pinned = checkout.root / "scripts/uv-requirements.txt"
    version = re.search(r"^uv==(\S+)", pinned.read_text(), re.MULTILINE).group(1)
    checksum = make_wheel(checkout.root, version)
    if known:
        pinned.write_text(f"uv=={version} --hash=sha256:{checksum}\n")
    without(checkout, "uv")
    checkout.program(checkout.bin / "python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout.root / "wheels"), "PIP_CONFIG_FILE": "/dev/null"}
    result = checkout.shell("install_uv; find_uv", **offline)
    own = checkout.root / ".venv-uv"
    if known:
        assert result.stdout.splitlines()[-1] == f"{own}/bin/uv", result.stderr
    else:
        refused(result, "uv-requirements.txt")
        assert not own.exists()


def test_a_failed_sync_leaves_no_stamp(checkout):
    (checkout.root / ".venv/mpzero-synced").unlink()
    checkout.program(checkout.bin / "uv", "#!/bin/bash\n[[ $1 == --version ]]\n")
    result = checkout.shell("sync_environment cuda")
    assert result.returncode == 2
    assert not (checkout.root / ".venv/mpzero-synced").exists()


# A machine with dnf and without Debian's commands.
AMAZON_LINUX = """
command() { [[ $2 == apt-get || $2 == dpkg-query ]] && return 1; builtin command "$@"; }
install_rights() { echo env; }
"""


def dnf(checkout, *has: str) -> None:
    """A dnf whose repositories have these packages."""
    checkout.program(
        checkout.bin / "dnf",
        f"""#!/bin/bash
printf 'dnf %s\\n' "$*" >>"$RECORD/calls"
[[ $2 != repoquery ]] || {{ [[ " {" ".join(has)} " != *" $3 "* ]] || echo "$3"; }}
""",
    )


def test_dnf_installs_its_own_names(checkout):
    dnf(checkout, "gcc14-c++", "ccache", "hdf5-devel", "openmpi-devel")
    entries = '"g++|false" "ccache|false" "libhdf5-dev|false" "libopenmpi-dev|false" "zlib1g-dev|true"'
    result = checkout.shell(f"{AMAZON_LINUX} install_packages {entries}")
    assert result.returncode == 0, result.stderr
    installed = [line for line in checkout.calls().splitlines() if " install " in line]
    assert installed == ["dnf install --assumeyes gcc14-c++ ccache hdf5-devel openmpi-devel"]


def test_what_dnf_does_not_have_is_named_with_the_repository_that_may(checkout):
    dnf(checkout, "zlib-devel")
    entries = '"libhdf5-dev|false" "slurm-wlm|false" "zlib1g-dev|false" "ccache|false"'
    result = checkout.shell(f"{AMAZON_LINUX} install_packages {entries}; echo went on")
    refused(result, "hdf5-devel slurm-wlm:", "SPAL")
    assert "went on" not in result.stdout and "zlib" not in result.stderr and " install " not in checkout.calls()
    # A build without ccache is slower, no more.
    result = checkout.shell(f'{AMAZON_LINUX} install_packages "ccache|false"')
    assert (result.returncode, result.stderr) == (0, "") and "no ccache" in result.stdout


def test_every_package_of_the_build_has_a_name_for_dnf(checkout):
    result = checkout.shell(
        'for entry in "${MPZERO_BUILD_PACKAGES[@]}" "${MPZERO_TEST_PACKAGES[@]}"; do'
        ' echo "${MPZERO_DNF_NAMES[${entry%%|*}]}"; done'
    )
    assert result.returncode == 0, result.stderr
    assert {"hdf5-devel", "boost-devel", "openmpi-devel", "catch2-devel"} <= set(result.stdout.split())
