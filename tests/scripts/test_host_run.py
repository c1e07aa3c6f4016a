"""train-singlenode.sh HOST: the same on another node, through srun."""

import pytest


def test_a_host_is_reached_through_srun_with_the_whole_node(checkout):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\necho 96\n")
    checkout.program(
        checkout.bin / "srun", '#!/bin/bash\nprintf "%s\\n" "$@" >"$RECORD/srun"; echo "$MAX_STEPS" >>"$RECORD/srun"\n'
    )
    result = checkout.run("ip-10-1-199-129", "--", "--seed", "7", MAX_STEPS="5")
    assert result.returncode == 0, result.stderr
    words = (checkout.record / "srun").read_text().splitlines()
    assert "--nodelist=ip-10-1-199-129" in words and "--cpus-per-task=96" in words
    assert words[-5:] == [str(checkout.root / "singlenode/train-singlenode.sh"), "--", "--seed", "7", "5"]
    assert not (checkout.record / "mpzero.flags").exists()


@pytest.mark.parametrize(
    ("resources", "arguments", "asked"),
    [
        ("gpu:h100:8(S:0-1)", "", ["--gpus-per-node=8"]),
        ("(null)", "", []),
        ("gpu:8", "--partition=gpu --gres=gpu:4", ["--gres=gpu:4"]),
        ("gpu:8", "-G 4", ["-G", "4"]),
    ],
)
def test_a_host_run_asks_slurm_for_the_gpus_of_the_node(checkout, resources, arguments, asked):
    checkout.program(checkout.bin / "sinfo", f"#!/bin/bash\necho '96 {resources}'\necho '96 {resources}'\n")
    checkout.program(checkout.bin / "srun", '#!/bin/bash\nprintf "%s\\n" "$@" >"$RECORD/srun"\n')
    assert checkout.run("node1", SRUN_ARGS=arguments).returncode == 0
    words = (checkout.record / "srun").read_text().splitlines()
    assert "--cpus-per-task=96" in words
    assert [word for word in words if word.startswith(("--g", "-G")) or word == "4"] == asked


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [("", ["--mem=0"]), ("--mem-bind=none", ["--mem-bind=none", "--mem=0"]), ("--mem-per-cpu=1G", ["--mem-per-cpu=1G"]),
     ("--mem 8G", ["--mem"])],
)  # fmt: skip
def test_a_host_run_has_all_memory_of_the_node_unless_the_user_asks_for_some(checkout, arguments, asked):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\necho '96 (null)'\n")
    checkout.program(checkout.bin / "srun", '#!/bin/bash\nprintf "%s\\n" "$@" >"$RECORD/srun"\n')
    assert checkout.run("node1", SRUN_ARGS=arguments).returncode == 0
    words = (checkout.record / "srun").read_text().splitlines()
    assert [word for word in words if word.startswith("--mem")] == asked


@pytest.mark.parametrize("job", [{}, {"SLURM_JOB_ID": "7"}])
def test_a_host_run_within_a_job_takes_no_option_from_its_environment(checkout, job):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\necho '96 (null)'\n")
    checkout.program(checkout.bin / "srun", '#!/bin/bash\nenv >"$RECORD/srun"\n')
    options = {"SLURM_MEM_PER_CPU": "1", "SLURM_PARTITION": "mine", "PMIX_RANK": "0"}
    assert checkout.run("node1", **options, **job).returncode == 0
    names = {line.split("=")[0] for line in (checkout.record / "srun").read_text().splitlines()}
    # Elsewhere they are the user's defaults.
    assert names & {*options, *job} == (set(job) if job else {"SLURM_MEM_PER_CPU", "SLURM_PARTITION"})


def test_a_host_that_slurm_does_not_know_is_an_error(checkout):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\nexit 1\n")
    checkout.program(checkout.bin / "srun", "#!/bin/bash\ntouch $RECORD/srun\n")
    result = checkout.run("nosuchhost")
    assert result.returncode == 2
    assert "nosuchhost" in result.stderr and not (checkout.record / "srun").exists()
