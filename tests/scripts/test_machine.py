"""machine.sh: what each node lacks is named, in one sentence, before MPI starts."""

import subprocess

import pytest

LIBRARIES = """\
\tlinux-vdso.so.1 (0x00007ffc)
\tlibcudart.so.13 => /shared/.venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcudart.so.13 (0x00007f01)
\tlibtorch_cpu.so => /shared/.venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so (0x00007f02)
\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f03)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f04)
"""
MPI = "/lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f03)"
TORCH = "/shared/.venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so (0x00007f02)"
RUNTIME = "/shared/.venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcudart.so.13"
SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver}             Driver Version: {driver}     CUDA Version: {cuda}     |
|-----------------------------------------+------------------------+----------------------+
"""


def stand_in(checkout, ldd: str = LIBRARIES, driver: str = "580.95.05", cuda: str = "13.0") -> None:
    for name, text in (("ldd", ldd), ("nvidia-smi", SMI.format(driver=driver, cuda=cuda))):
        (checkout.record / f"{name}.text").write_text(text)
        checkout.program(checkout.bin / name, f'#!/bin/bash\ncat "$RECORD/{name}.text"\n')
    checkout.program(checkout.bin / "hostname", "#!/bin/bash\necho node3\n")


GLIBC = "build/bin/mpzero: /lib/libc.so.6: version `GLIBC_2.38' not found (required by build/bin/mpzero)\n"
BROKEN = "build/bin/mpzero: error while loading shared libraries: libmpi.so.40: file too short\n"
LACKS = {
    "a library of a package": ({"ldd": LIBRARIES.replace(MPI, "not found")}, ["libmpi.so.40", "openmpi-bin"]),
    "another": ({"ldd": LIBRARIES + "\tlibz.so.1 => not found\n"}, ["libz.so.1", "install zlib1g"]),
    "an unknown one": ({"ldd": LIBRARIES + "\tlibq.so.1 => not found\n"}, ["libq.so.1", "apt-file search libq.so.1"]),
    "a library of the wheels": ({"ldd": LIBRARIES.replace(TORCH, "not found")}, ["libtorch_cpu.so", ".venv"]),
    "a whole library": ({"ldd": BROKEN}, ["libmpi.so.40: file too short", "openmpi-bin"]),
    "a newer libc": ({"ldd": GLIBC + LIBRARIES}, ["GLIBC_2.38"]),
    "the wheels' CUDA": (
        {"ldd": LIBRARIES.replace(RUNTIME, "/usr/local/cuda-13.1/lib64/libcudart.so.13")},
        ["/usr/local/cuda-13.1/lib64/libcudart.so.13", "LD_LIBRARY_PATH"],
    ),
    "a newer driver": ({"driver": "570.172.08", "cuda": "12.8"}, ["570.172.08", "580", "cuda-compat-13-0"]),
}


def refused(result: subprocess.CompletedProcess, words: list[str]) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("mpzero: error: ")]
    assert len(errors) == 1 and all(word in errors[0] for word in words), result.stderr


@pytest.mark.parametrize(("machine", "words"), LACKS.values(), ids=LACKS)
def test_what_a_machine_lacks_is_named_with_the_remedy(checkout, machine, words):
    stand_in(checkout, **machine)
    refused(checkout.shell("require_libraries 8; echo went on"), ["node3: ", str(checkout.root / "build/bin"), *words])


@pytest.mark.parametrize(
    ("machine", "gpus"),
    [
        ({}, 8),
        ({"driver": "610.1", "cuda": "14.2"}, 8),
        # With a compatibility library in LD_LIBRARY_PATH.
        ({"driver": "570.172.08", "cuda": "13.0"}, 8),
        ({"driver": "570.172.08", "cuda": "12.8"}, 0),
        ({"ldd": "\tnot a dynamic executable\n"}, 8),
    ],
)
def test_a_machine_that_has_everything_is_passed(checkout, machine, gpus):
    stand_in(checkout, **machine)
    result = checkout.shell(f"require_machine 2 {gpus}; echo went on")
    assert (result.returncode, result.stdout, result.stderr) == (0, "went on\n", "")


def test_a_program_that_a_node_does_not_see_is_named(checkout):
    (checkout.root / "build/bin/mpzero").unlink()
    refused(checkout.shell("require_libraries 0"), [str(checkout.root / "build/bin/mpzero"), "share"])


# srun runs the step on node1 and node2 in turn.
SRUN = """#!/bin/bash
printf 'srun %s\\n' "$*" >>"$RECORD/calls"
while [[ $1 == --* ]]; do shift; done
for node in node1 node2; do SLURMD_NODENAME=$node "$@"; done
"""


@pytest.mark.parametrize(("lacking", "names"), [("node2", "node2: "), ("node1 node2", "node1,node2: ")])
def test_the_first_step_of_a_job_names_the_nodes(checkout, lacking, names):
    stand_in(checkout, LIBRARIES)
    checkout.program(checkout.bin / "srun", SRUN)
    checkout.program(
        checkout.bin / "ldd",
        f'#!/bin/bash\n[[ " {lacking} " != *" $SLURMD_NODENAME "* ]] || printf "\\tlibmpi.so.40 => not found\\n"\n',
    )
    result = checkout.shell("check_nodes 2 8 8 4; echo went on", SLURM_JOB_NODELIST="node[1-2]")
    refused(result, [names, "libmpi.so.40"])
    # Slurm shows a step the GPUs that it asks for.
    assert "--nodes=2 --ntasks=2 --ntasks-per-node=1" in checkout.calls() and "--gpus-per-node=4" in checkout.calls()
    assert "went on" not in result.stdout


def test_nodes_that_have_everything_choose_the_network(checkout):
    stand_in(checkout)
    checkout.program(checkout.bin / "srun", SRUN)
    tables = checkout.root.parent / "tables"
    tables.mkdir()
    (tables / "route").write_text("Iface\nens5\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    variables = {"SLURM_JOB_NODELIST": "node[1-2]", "NETWORK_TABLES": str(tables)}
    result = checkout.shell("check_nodes 2 2 0 0; env", **variables)
    assert result.returncode == 0 and "OMPI_MCA_btl_tcp_if_include=ens5" in result.stdout.splitlines(), result.stderr
    # Of one node, no step is asked.
    (checkout.record / "calls").unlink()
    result = checkout.shell("check_nodes 1 2 0 0; env", **variables)
    assert result.returncode == 0 and "if_include" not in result.stdout and checkout.calls() == "", result.stderr


@pytest.mark.parametrize(("variables", "status"), [({"MPZERO_TOOLKIT": "/none"}, 2), ({}, 0)])
def test_the_toolkit_of_cuda_version_is_asked_of_every_node(checkout, variables, status):
    # In a pod nothing chooses one; images of CUDA set the variable.
    stand_in(checkout)
    result = checkout.shell("require_machine 1 0", CUDA_VERSION="12.9", **variables)
    assert (result.returncode, "CUDA_VERSION=12.9" in result.stderr) == (status, status == 2), result.stderr


def test_a_node_without_a_route_is_named(checkout):
    file = checkout.record / "found"
    file.write_text("n0 route ens5 10.0.0.0/20\nn1 route none\n")
    refused(checkout.shell(f'judge_machines 2 "$(<{file})"'), ["n1 ", "OMPI_MCA_btl_tcp_if_include"])
    result = checkout.shell(f'judge_machines 2 "$(<{file})"', OMPI_MCA_btl_tcp_if_include="eth9")
    assert result.returncode == 0, result.stderr


def test_what_a_node_reports_is_data(checkout):
    file = checkout.record / "found"
    file.write_text(
        "n0 route $(id>canary) a[$(id>canary)]\nn1 warning $(id>canary) \x1b[2J\nn1 route ens5 08.0.0.0/20\n"
    )
    result = checkout.shell(f'judge_machines 2 "$(<{file})"; env')
    assert result.returncode == 0 and "OMPI_MCA_btl_tcp_if_include=ens5" in result.stdout, result.stderr
    assert "\x1b" not in result.stderr and not list(checkout.root.parent.rglob("canary"))


def test_one_machine_is_asked_before_its_ranks(checkout):
    stand_in(checkout, LIBRARIES.replace(MPI, "not found"))
    refused(checkout.run(), ["node3: ", "libmpi.so.40"])
    assert not (checkout.record / "mpzero.pids").exists()
