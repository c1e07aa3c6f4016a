"""environment.sh, install.sh and build.sh by function, on folders that look like the machine in question."""

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


def refused(result, *facts: str) -> None:
    """In one sentence."""
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stdout + result.stderr
    assert all(fact in result.stderr for fact in facts), result.stderr


def efa_variables(checkout, folder, **variables: str) -> dict[str, str]:
    """What ranks get on a machine with such devices."""
    return set_variables(checkout.shell("set_efa_environment 8; env", INFINIBAND_CLASS=str(folder), **variables))


def set_variables(result) -> dict[str, str]:
    assert result.returncode == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)


@pytest.fixture
def efa(tmp_path):
    """A machine with an EFA device under its new name: only the driver tells."""
    device = tmp_path / "class/rdmap16s27"
    device.mkdir(parents=True)
    (tmp_path / "drivers/efa").mkdir(parents=True)
    (device / "device").mkdir()
    (device / "device/driver").symlink_to(tmp_path / "drivers/efa")
    return tmp_path


def test_without_efa_nothing_is_set(checkout, tmp_path):
    names = efa_variables(checkout, tmp_path / "none")
    assert not [name for name in names if name.startswith(("NCCL_", "FI_", "OMPI_MCA_"))]
    # InfiniBand of another driver.
    (tmp_path / "class/mlx5_0/device").mkdir(parents=True)
    (tmp_path / "drivers/mlx5_core").mkdir(parents=True)
    (tmp_path / "class/mlx5_0/device/driver").symlink_to(tmp_path / "drivers/mlx5_core")
    assert "NCCL_NET" not in efa_variables(checkout, tmp_path / "class")


def test_efa_gets_what_must_be_there_before_a_process_starts(checkout, efa):
    for folder in ("amazon/ofi-nccl/lib/x86_64-linux-gnu", "amazon/efa/lib"):
        (efa / "opt" / folder).mkdir(parents=True)
    parent = str(efa / "opt")
    names = efa_variables(checkout, efa / "class", EFA_PARENT=parent, LD_LIBRARY_PATH="/mine")
    folders = names["LD_LIBRARY_PATH"].split(":")
    assert folders[0] == "/mine"
    assert {str(efa / "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"), str(efa / "opt/amazon/efa/lib")} <= set(folders)
    assert not any("aws-ofi-nccl" in folder for folder in folders)
    assert names["NCCL_SOCKET_IFNAME"] == "^docker,lo,veth,virbr"
    assert (names["OMPI_MCA_pml"], names["OMPI_MCA_btl"]) == ("ob1", "tcp,self,vader")
    # The network itself is chosen, and proven, by mpzero.
    assert "NCCL_NET" not in names and "FI_PROVIDER" not in names
    names = efa_variables(checkout, efa / "class", EFA_PARENT=parent, NCCL_SOCKET_IFNAME="ens5")
    assert names["NCCL_SOCKET_IFNAME"] == "ens5"


OFI = "mca:mtl:ofi:version:component:4.1.7"


@pytest.mark.parametrize(
    ("lists", "given", "transport", "said"),
    [
        (OFI, {}, {"pml": "cm", "mtl": "ofi", "mtl_ofi_provider_include": "efa"}, "MPI uses EFA"),
        ("mca:mtl:psm2:version:component:4.1.4", {}, {"pml": "ob1", "btl": "tcp,self,vader"}, "MPI uses TCP"),
        # What the user has chosen stays, all of it.
        (OFI, {"pml": "ob1"}, {"pml": "ob1"}, None),
        (OFI, {"btl": "tcp,self"}, {"btl": "tcp,self"}, None),
        (OFI, {"mtl": "psm2"}, {"mtl": "psm2"}, None),
    ],
)
def test_ranks_on_cpus_use_efa_where_their_mpi_can(checkout, efa, lists, given, transport, said):
    (efa / "opt/amazon/efa/lib").mkdir(parents=True)
    checkout.program(checkout.bin / "ompi_info", f"#!/bin/bash\necho {lists}\n")
    variables = {f"OMPI_MCA_{name}": value for name, value in given.items()}
    variables |= {"INFINIBAND_CLASS": str(efa / "class"), "EFA_PARENT": str(efa / "opt")}
    result = checkout.shell("set_efa_environment 0; env", **variables)
    names = set_variables(result)
    chosen = {name[9:]: value for name, value in names.items() if name.startswith("OMPI_MCA_")}
    assert chosen == transport
    assert names["LD_LIBRARY_PATH"].endswith("amazon/efa/lib")
    # Nothing of NCCL's: it is not there.
    assert not [name for name in names if name.startswith("NCCL_")]
    lines = [line for line in (result.stdout + result.stderr).splitlines() if "MPI uses" in line]
    assert len(lines) == (1 if said else 0)
    assert said is None or said in lines[0]


def test_libfabric_finds_the_cuda_runtime_after_the_users_own_folders(checkout, efa):
    wheel = checkout.root / ".venv/lib/python3.11/site-packages/nvidia/cu13"
    (wheel / "lib").mkdir(parents=True)
    (wheel / "lib/libcudart.so.13").write_text("the wheel's")
    variables = {"INFINIBAND_CLASS": str(efa / "class"), "EFA_PARENT": str(efa / "none")}
    command = "complete_cuda_wheel; complete_cuda_wheel; set_efa_environment 8; env"
    names = set_variables(checkout.shell(command, LD_LIBRARY_PATH="/mine", **variables))
    mine, runtime = names["LD_LIBRARY_PATH"].split(":")
    assert mine == "/mine"
    assert os.listdir(runtime) == ["libcudart.so"]
    assert Path(runtime, "libcudart.so").read_text() == "the wheel's"


def test_hyperpod_resumes_failed_nodes_where_slurm_lets_it(checkout, tmp_path):
    for folder, gpus, arguments in (("", 0, "--auto-resume=1\n"), ("", 8, ""), ("none", 0, "")):
        result = checkout.shell(f"hyperpod_arguments {gpus}", HYPERPOD_FOLDER=str(tmp_path / folder))
        assert (result.returncode, result.stdout) == (0, arguments), result.stderr


def test_hyperpod_hears_of_it_from_mpirun_s_own_srun(checkout, tmp_path):
    """HyperPod's Slurm may lack PMIx."""
    checkout.program(checkout.bin / "srun", "#!/bin/bash\n")
    checkout.program(checkout.bin / "mpirun", "#!/bin/bash\nenv\n")
    for gpus, given, arguments in ((0, "", "--auto-resume=1"), (0, "-q", "-q --auto-resume=1"), (8, "", None)):
        variables = {"HYPERPOD_FOLDER": str(tmp_path)} | ({"OMPI_MCA_plm_slurm_args": given} if given else {})
        result = checkout.shell(f'choose_launcher 2 8 96 {gpus}; "${{MPZERO_MPIRUN[@]}}"', **variables)
        names = set_variables(result)
        assert names.get("OMPI_MCA_plm_slurm_args") == arguments, result.stderr
        assert ("PRTE_MCA_plm_slurm_args" in names) == (gpus == 0)


@pytest.mark.parametrize(("given", "fence"), [("", "ring"), ("tree", "tree")])
def test_srun_waits_for_the_ranks_of_all_nodes(checkout, given, fence):
    checkout.program(checkout.bin / "srun", "#!/bin/bash\n[[ $1 != --mpi=list ]] || echo pmix\nenv\n")
    command = "choose_launcher 2 8 96 0; launch_ranks 0 true"
    variables = {"SLURM_PMIX_FENCE": given, "SLURM_JOB_ID": "7", "CHECKPOINT_DIR": str(checkout.root)}
    assert set_variables(checkout.shell(command, **variables))["SLURM_PMIX_FENCE"] == fence


def make_cpus(checkout, domains: str, allowed: str, count: int) -> dict[str, str]:
    """A machine whose CPU number i is in the NUMA domain with the i-th letter, and a shell that may use some of them"""
    lines = "".join(f"{cpu},{domain.strip('-')}\\n" for cpu, domain in enumerate(domains))
    checkout.program(checkout.bin / "lscpu", f"#!/bin/bash\nprintf '# CPU,Node\\n{lines}'\n")
    checkout.program(checkout.bin / "nproc", f"#!/bin/bash\necho ${{OMP_NUM_THREADS:-{count}}}\n")
    status = checkout.root / "status"
    status.write_text(f"Name:\tbash\nCpus_allowed_list:\t{allowed}\n")
    return {"PROCESS_STATUS": str(status)}


@pytest.mark.parametrize(
    ("domains", "allowed", "found"),
    [
        ("00001111", "0-7", "2"),
        ("00001111", "0-3", "1"),
        ("00001111", "3-4", "2"),
        ("00112233", "0-1,6,7", "2"),
        ("01010101", "1,3,5,7", "1"),
        ("--------", "0-7", "1"),
        ("", "0-7", "1"),
    ],
)
def test_numa_domains_are_those_of_the_cores_that_may_be_used(checkout, domains, allowed, found):
    variables = make_cpus(checkout, domains, allowed, 8)
    assert checkout.shell("numa_domains", **variables).stdout.strip() == found


def test_without_lscpu_there_is_one_domain(checkout):
    checkout.program(checkout.bin / "lscpu", "#!/bin/bash\nexit 1\n")
    assert checkout.shell("numa_domains", PROCESS_STATUS="/nowhere").stdout.strip() == "1"


@pytest.mark.parametrize(
    ("domains", "gpus", "cores", "nproc", "model", "ranks"),
    [
        ("0" * 96, 8, 96, "", "qwen3_0_6b", "8"),
        ("0" * 96, 8, 96, "4", "qwen3_0_6b", "4"),
        ("0" * 96, 0, 96, "", "qwen3_0_6b", "1"),
        ("0" * 96, 0, 96, "", "qwen3_tiny", "2"),
        ("0", 0, 1, "", "qwen3_tiny", "1"),
        ("0" * 48 + "1" * 48, 0, 96, "", "qwen3_0_6b", "2"),
        ("0" * 48 + "1" * 48, 0, 96, "", "qwen3_tiny", "2"),
        ("0" * 48 + "1" * 48, 0, 96, "1", "qwen3_tiny", "1"),
        ("0" * 24 + "1" * 24 + "2" * 24 + "3" * 24, 0, 96, "", "qwen3_0_6b", "4"),
        # The job has fewer cores than it sees.
        ("0" * 24 + "1" * 24 + "2" * 24 + "3" * 24, 0, 48, "", "qwen3_0_6b", "2"),
        ("0" * 48 + "1" * 48, 0, 8, "", "qwen3_0_6b", "1"),
    ],
)
def test_ranks_per_node(checkout, domains, gpus, cores, nproc, model, ranks):
    count = len(domains)
    variables = make_cpus(checkout, domains, f"0-{count - 1}", count)
    result = checkout.shell(f"ranks_per_node {gpus} {cores}", NPROC=nproc, MODEL_TYPE=model, **variables)
    assert result.stdout.strip() == ranks, result.stderr


def test_omp_num_threads_does_not_hide_cores(checkout):
    variables = make_cpus(checkout, "00001111", "0-7", 8)
    assert checkout.shell("visible_cpus", OMP_NUM_THREADS="1", **variables).stdout.strip() == "8"


@pytest.mark.parametrize(
    ("ranks", "cores", "gpus", "given", "threads"),
    [
        (2, 8, 2, "", "4"),
        (4, 2, 4, "", "1"),
        (2, 8, 2, "3", "3"),
        # On the CPU mpzero divides the cores, unless the job has fewer than it sees.
        (2, 8, 0, "", None),
        (2, 8, 0, "3", "3"),
        (2, 4, 0, "", "2"),
        (4, 2, 0, "", "1"),
    ],
)
def test_threads_share_the_cores(checkout, ranks, cores, gpus, given, threads):
    variables = {"OMP_NUM_THREADS": given} if given else {}
    variables |= make_cpus(checkout, "0" * 8, "0-7", 8)
    names = set_variables(checkout.shell(f"set_rank_environment {ranks} {cores} {gpus}; env", **variables))
    assert names.get("OMP_NUM_THREADS") == threads


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


def test_the_cuda_wheel_gets_the_folder_that_nvcc_looks_in(checkout):
    wheel = checkout.root / ".venv/lib/python3.11/site-packages/nvidia/cu13"
    (wheel / "lib").mkdir(parents=True)
    (wheel / "lib/libcudadevrt.a").write_text("")
    (checkout.root / "build/mpzero-configured").unlink()
    assert checkout.shell("build_programs off 0 mpzero").returncode == 0
    assert (wheel / "lib64/libcudadevrt.a").exists()


def test_a_build_made_for_tests_serves_training(checkout):
    stamp = checkout.root / "build/mpzero-configured"
    stamp.write_text(stamp.read_text().replace(" off", " on"))
    assert checkout.shell("build_programs off 0 mpzero").returncode == 0
    assert "cmake" not in checkout.calls()
    stamp.write_text(stamp.read_text().replace(" on", " off"))
    assert checkout.shell("build_programs on 0 mpzero").returncode == 0
    assert "-DBUILD_TESTING=ON" in checkout.calls()


def configured(checkout, architectures: str) -> None:
    """A build folder that was made for these GPUs."""
    stamp = checkout.root / "build/mpzero-configured"
    stamp.write_text(f"{stamp.read_text().split()[0]} off {architectures}\n")


@pytest.mark.parametrize(
    ("gpus", "sinfo", "chosen", "architectures"),
    [
        (0, "(null)", "", "none"),
        (8, "(null)", "", "all"),
        (0, "gpu:h100:8", "", "all"),
        (0, "(null)", "80-real;90", "80-real;90"),
        (8, "gpu:8", "none", "none"),
    ],
)
def test_kernels_are_compiled_where_there_are_gpus_to_run_them(checkout, gpus, sinfo, chosen, architectures):
    checkout.program(checkout.bin / "sinfo", f"#!/bin/bash\necho '{sinfo}'\n")
    (checkout.root / "build/mpzero-configured").unlink()
    result = checkout.shell(f"build_programs off {gpus} mpzero", MPZERO_GPU_ARCHITECTURES=chosen)
    assert result.returncode == 0, result.stderr
    assert f"-DMPZERO_GPU_ARCHITECTURES={architectures}\n" in checkout.calls()
    assert ("without GPU kernels" in result.stdout) == (architectures == "none")
    # With --device cpu there may be some.
    assert "lists no GPUs" not in result.stdout
    # Another time there is nothing to configure.
    assert checkout.shell(f"build_programs off {gpus} mpzero", MPZERO_GPU_ARCHITECTURES=chosen).returncode == 0
    assert checkout.calls().count("cmake") == 1


@pytest.mark.parametrize(
    ("cores", "cache", "joined"),
    [
        (2, None, "ON"),
        (64, None, "OFF"),
        # Whoever builds there next, on whatever machine, builds as before.
        (64, "MPZERO_JOIN_SOURCES:BOOL=ON\n", "ON"),
        (2, "MPZERO_JOIN_SOURCES:BOOL=OFF\n", "OFF"),
        (2, "made by an earlier release\n", "OFF"),
    ],
)
def test_rooms_are_compiled_as_one_file_where_there_are_few_cores(checkout, cores, cache, joined):
    checkout.program(checkout.bin / "nproc", f"#!/bin/bash\necho {cores}\n")
    checkout.program(checkout.bin / "awk", "#!/bin/bash\necho 512\n")  # gigabytes of memory
    (checkout.root / "build/mpzero-configured").unlink()
    if cache is not None:
        (checkout.root / "build/CMakeCache.txt").write_text(cache)
    result = checkout.shell("build_programs off 0 mpzero")
    assert result.returncode == 0, result.stderr
    assert f" -DMPZERO_JOIN_SOURCES={joined} " in checkout.calls()


def test_gpus_that_are_found_later_get_their_kernels_and_those_of_a_shared_folder_stay(checkout):
    configured(checkout, "none")
    assert checkout.shell("build_programs off 0 mpzero").returncode == 0
    assert "cmake" not in checkout.calls()
    assert checkout.shell("build_programs off 2 mpzero").returncode == 0
    assert "-DMPZERO_GPU_ARCHITECTURES=all\n" in checkout.calls()
    configured(checkout, "90")
    with open(checkout.root / "uv.lock", "a") as lock:
        lock.write("\n")
    assert checkout.shell("build_programs off 0 mpzero").returncode == 0
    assert "-DMPZERO_GPU_ARCHITECTURES=90\n" in checkout.calls()


@pytest.mark.parametrize("value", ["ninety", "90;", "-DX=1", "$(id)"])
def test_architectures_that_cmake_does_not_know_are_refused(checkout, value):
    result = checkout.shell("build_programs off 0 mpzero", MPZERO_GPU_ARCHITECTURES=value)
    refused(result, f"MPZERO_GPU_ARCHITECTURES={value}")


@pytest.mark.parametrize(("built", "gpus"), [("none", 0), ("all", 8), ("90", 8)])
def test_a_job_whose_programs_fit_its_nodes_builds_nothing(checkout, built, gpus):
    configured(checkout, built)
    assert checkout.shell(f"require_gpu_kernels {gpus}").returncode == 0
    assert checkout.calls() == ""


def test_a_job_with_gpus_builds_the_kernels_that_are_missing(checkout):
    configured(checkout, "none")
    result = checkout.shell("missing_packages() { echo ccache; }; require_gpu_kernels 8")
    assert result.returncode == 0, result.stderr
    calls = checkout.calls()
    assert "-DMPZERO_GPU_ARCHITECTURES=all\n" in calls and "mpzero zero_to_fp32" in calls


def test_a_job_with_gpus_whose_user_wants_no_kernels_says_so(checkout):
    configured(checkout, "none")
    result = checkout.shell("missing_packages() { :; }; require_gpu_kernels 8", MPZERO_GPU_ARCHITECTURES="none")
    refused(result, "MPZERO_GPU_ARCHITECTURES=none")
    assert checkout.calls() == ""


def test_a_node_that_cannot_build_them_says_what_can(checkout):
    configured(checkout, "none")
    result = checkout.shell("missing_packages() { printf '%s\\n' g++ ccache libhwloc-dev; }; require_gpu_kernels 8")
    refused(result, "(g++ libhwloc-dev)", "MPZERO_GPU_ARCHITECTURES=all ./train-singlenode.sh --build-only")
    assert checkout.calls() == ""


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
    assert (result.returncode, result.stderr) == (0, "") and "without it" in result.stdout


def test_every_package_of_the_build_has_a_name_for_dnf(checkout):
    result = checkout.shell(
        'for entry in "${MPZERO_BUILD_PACKAGES[@]}" "${MPZERO_TEST_PACKAGES[@]}"; do'
        ' echo "${MPZERO_DNF_NAMES[${entry%%|*}]}"; done'
    )
    assert result.returncode == 0, result.stderr
    assert {"hdf5-devel", "boost-devel", "openmpi-devel", "catch2-devel"} <= set(result.stdout.split())


def make_compilers(checkout, versions: dict[str, str]) -> None:
    """Those of the machine are not found."""
    for name in ("g++", "g++-14", "g++-13", "g++-12", "gcc14-g++"):
        version = versions.get(name, "")
        checkout.program(checkout.bin / name, f"#!/bin/bash\n[[ -n '{version}' ]] && echo {version}\n")


@pytest.mark.parametrize(
    ("system", "later", "chosen"),
    [
        ("12", "14.2.1", ""),
        ("11.4", "14", "gcc14-g++ gcc14-gcc gcc14-g++"),
        ("11", "14", "gcc14-g++ gcc14-gcc gcc14-g++"),
        ("x", "", ""),
        ("13.2.0", "", ""),
    ],
)
def test_a_compiler_that_is_too_old_is_not_taken(checkout, system, later, chosen):
    make_compilers(checkout, {"g++": system, "gcc14-g++": later})
    result = checkout.shell('choose_compiler; echo "${CXX:-} ${CC:-} ${CUDAHOSTCXX:-}"')
    assert result.stdout.strip() == chosen, result.stderr
    assert checkout.shell("find_compiler").returncode == (1 if system == "x" else 0)
    assert checkout.shell("choose_compiler; echo $CXX ${CC:-}", CXX="clang++").stdout.strip() == "clang++"


def test_a_compiler_of_the_user_also_compiles_for_nvcc_and_mpi(checkout):
    shown = 'choose_compiler; echo "$CXX $CC $CUDAHOSTCXX"'
    folder = "/opt/gcc/bin/x86_64-linux-gnu-"
    result = checkout.shell(shown, CXX=f"{folder}g++-13")
    assert result.stdout.split() == [f"{folder}g++-13", f"{folder}gcc-13", f"{folder}g++-13"]
    result = checkout.shell(shown, CXX="g++-13", CC="cc", CUDAHOSTCXX="g++-12")
    assert result.stdout.split() == ["g++-13", "cc", "g++-12"]


def test_on_ubuntu_22_04_a_second_gcc_is_installed_and_used(checkout):
    """Its g++ is of gcc 11, and apt has g++-12 beside it."""
    make_compilers(checkout, {"g++": "11"})
    checkout.program(checkout.bin / "apt-cache", "#!/bin/bash\necho '  Candidate: 4:11.2.0-1ubuntu1'\n")
    installed = checkout.bin / "g++-12"
    script = f"printf '#!/bin/bash\\necho 12\\n' >{installed}; chmod +x {installed}"
    checkout.program(
        checkout.bin / "apt-get",
        f'#!/bin/bash\nprintf "%s\\n" "$*" >>"$RECORD/calls"\n[[ $1 != install ]] || {{ {script}; }}\n',
    )
    result = checkout.shell('install_packages "g++|find_compiler"; choose_compiler; echo "$CXX $CC $CUDAHOSTCXX"')
    assert result.stdout.splitlines()[-1] == "g++-12 gcc-12 g++-12", result.stderr
    assert (checkout.record / "calls").read_text().splitlines()[-1].split()[-1] == "g++-12"


@pytest.mark.parametrize("folder", ["opt/amazon/openmpi/bin", "opt/amazon/openmpi5/bin", "lib64/openmpi/bin"])
def test_an_open_mpi_outside_of_path_is_found(checkout, tmp_path, folder):
    checkout.program(tmp_path / folder / "mpirun", "#!/bin/bash\n")
    hidden = 'command() { [[ $2 == mpirun ]] && return 1; builtin command "$@"; }; '
    variables = {"EFA_PARENT": str(tmp_path / "opt"), "LIB64": str(tmp_path / "lib64")}
    assert checkout.shell(f'{hidden} find_mpi; echo "$PATH"', **variables).stdout.startswith(f"{tmp_path / folder}:")
    checkout.program(checkout.bin / "mpirun", "#!/bin/bash\n")
    assert str(tmp_path / folder) not in checkout.shell('find_mpi; echo "$PATH"', **variables).stdout
