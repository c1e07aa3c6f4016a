"""build.sh by function, on folders that look like the machine in question."""

import pytest
from results import refused


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
        # An existing build folder keeps its setting on any machine.
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
    """Its g++ is version 11; apt also provides g++-12."""
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
