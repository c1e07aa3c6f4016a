"""environment.sh by function, on folders that look like the machine in question."""

import os
from pathlib import Path

import pytest
from results import set_variables


def efa_variables(checkout, folder, **variables: str) -> dict[str, str]:
    """What ranks get on a machine with such devices."""
    return set_variables(checkout.shell("set_efa_environment 8; env", INFINIBAND_CLASS=str(folder), **variables))


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


@pytest.mark.parametrize(
    ("given", "spins"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": "5"}, "5"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_waiting_threads_yield_the_cores_that_other_programs_use(checkout, given, spins):
    names = set_variables(checkout.shell("set_rank_environment 1 2; env", **given))
    assert names.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize("folder", ["opt/amazon/openmpi/bin", "opt/amazon/openmpi5/bin", "lib64/openmpi/bin"])
def test_an_open_mpi_outside_of_path_is_found(checkout, tmp_path, folder):
    checkout.program(tmp_path / folder / "mpirun", "#!/bin/bash\n")
    hidden = 'command() { [[ $2 == mpirun ]] && return 1; builtin command "$@"; }; '
    variables = {"EFA_PARENT": str(tmp_path / "opt"), "LIB64": str(tmp_path / "lib64")}
    assert checkout.shell(f'{hidden} find_mpi; echo "$PATH"', **variables).stdout.startswith(f"{tmp_path / folder}:")
    checkout.program(checkout.bin / "mpirun", "#!/bin/bash\n")
    assert str(tmp_path / folder) not in checkout.shell('find_mpi; echo "$PATH"', **variables).stdout
