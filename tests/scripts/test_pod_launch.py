"""container/launch and scripts/pods.sh, with stand-ins for ssh, mpirun and mpzero."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

# ssh to a pod: the words after the host run here, with the pod's name in POD. A pod whose file "gone.POD" is there does
# not answer.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -n) shift ;; *) shift 2 ;; esac; done
host=$1
shift
printf 'ssh %s %s\\n' "$host" "$*" >>"$RECORD/calls"
if [[ -f $RECORD/gone.$host ]]; then
  echo "ssh: connect to host $host port 2222: Connection refused" >&2
  exit 255
fi
POD=${host%%.*} MPZERO_HOST=$host MPZERO_NODE_NAME=ip-10-0-0-${#host} bash -c "$*"
"""
HOSTNAME = """#!/bin/bash
echo "${POD:-job-launcher-0-0}"
"""
# mpirun starts the ranks on the hosts of its hostfile, unless $RECORD/all_here is there: then on the launcher alone, as
# Open MPI 5 does with the variables of Open MPI 4.
MPIRUN = """#!/bin/bash
[[ $1 != --version ]] || { echo "mpirun (Open MPI) 4.1.4"; exit; }
# bash cannot handle a signal that it has found ignored; mpirun can.
if [[ -n ${FAKE_SAVES:-} && -z ${HANDLES:-} ]]; then HANDLES=1 exec env --default-signal=USR1 "$0" "$@"; fi
printf 'mpirun %s\\n' "$*" >>"$RECORD/calls"
env >"$RECORD/mpirun.env"
ranks="" hostfile=""
while [[ $1 == -* ]]; do
  case $1 in
    --hostfile) hostfile=$2; cp "$2" "$RECORD/hostfile"; shift 2 ;;
    -n) ranks=$2; shift 2 ;;
    *) shift 2 ;;
  esac
done
if [[ $1 == bash ]]; then
  while read -r host slots; do
    for ((i = 0; i < ${slots#slots=}; ++i)); do
      if [[ -f $RECORD/all_here ]]; then POD=job-launcher-0-0 "$@"; else POD=${host%%.*} "$@"; fi
    done
  done <"$hostfile"
  exit
fi
if [[ -n ${FAKE_MPI_FAILS:-} && " $* " == *" $FAKE_MPI_FAILS "* ]]; then
  # What a rank does that MPI cannot start; this mpirun's status is another.
  : >"$MPZERO_START_FILE"
  exit 1
fi
if [[ $2 == doctor ]]; then
  printf '%s\\n' "$@" >"$RECORD/doctor.flags"
  exit "${FAKE_DOCTOR:-0}"
fi
export OMPI_COMM_WORLD_RANK=0
# Not bash: where a trapped signal comes as a child ends, `wait` loses the child's status.
[[ -z ${FAKE_SAVES:-} ]] || exec PYTHON -c "$FORWARDING" "$@"
exec "$@"
""".replace("PYTHON", sys.executable)
# As mpirun does: SIGUSR1 goes on to the rank, and the rank's status is its own.
FORWARDING = """
import signal, subprocess, sys
child, early = None, []
signal.signal(signal.SIGUSR1, lambda number, _: child.send_signal(number) if child else early.append(number))
child = subprocess.Popen(sys.argv[1:])
for number in early: child.send_signal(number)
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""
HOSTS = ["job-node-0-0.job", "job-node-0-1.job", "job-launcher-0-0.job"]


class Pods:
    """The launcher's pod of a job of three nodes with two ranks each."""

    def __init__(self, checkout):
        self.checkout = checkout
        self.record = checkout.record
        for name, text in {"ssh": SSH, "hostname": HOSTNAME, "mpirun": MPIRUN}.items():
            checkout.program(checkout.bin / name, text)
        checkout.program(checkout.bin / "nvidia-smi", "#!/bin/bash\nexit 9\n")
        self.checkpoints = checkout.root / "checkpoints"
        self.hostfile = checkout.record / "given_hostfile"
        self.list_hosts(HOSTS)
        self.variables = {
            "MPZERO_NODES": "3", "MPZERO_GPUS": "0", "MPZERO_EFA": "", "MPZERO_WAIT": "60",
            "MPZERO_ASK_SECONDS": "0.05",
            "MPZERO_EVIDENCE_SECONDS": "0",
            "MPZERO_HOSTFILE": str(self.hostfile), "MPZERO_JOB": "uid-1", "CHECKPOINT_DIR": str(self.checkpoints),
            "INFINIBAND_CLASS": str(checkout.record / "infiniband"),
            "INFINIBAND_DEVICES": str(checkout.record / "verbs"),
        }  # fmt: skip

    def list_hosts(self, hosts, slots: int = 2) -> None:
        self.hostfile.write_text("".join(f"{host} slots={slots}\n" for host in hosts))

    def command(self, *flags: str) -> list[str]:
        return [str(self.checkout.root / "container/launch"), *flags]

    def environment(self, variables) -> dict[str, str]:
        return self.checkout.environment({**self.variables, **variables})

    def run(self, *flags: str, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*flags), env=self.environment(variables), cwd=self.checkout.root, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, start_new_session=True,
        )  # fmt: skip

    def start(self, **variables: str) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(), env=self.environment(variables), cwd=self.checkout.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def start_and_wait_for(self, file: str, **variables: str) -> subprocess.Popen:
        """Until there is this file among the records."""
        (self.record / file).unlink(missing_ok=True)
        process = self.start(**variables)
        while not (self.record / file).exists():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        return process

    def save_and_stop(self, **variables: str) -> str:
        """A run that saves once it is asked to stop. -> its output"""
        process = self.start_and_wait_for("ready.0", FAKE_SAVES="true", FORWARDING=FORWARDING, **variables)
        return stop(process, 75)

    def trained(self) -> bool:
        return (self.record / "mpzero.flags").exists()


@pytest.fixture
def pods(checkout):
    return Pods(checkout)


def stop(process: subprocess.Popen, status: int) -> str:
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == status, output
    return output


def refused(result, status: int = 2) -> str:
    """The one sentence of an error."""
    assert result.returncode == status, result.stdout + result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("mpzero: error: ")]
    assert len(errors) == 1, result.stderr
    return errors[0]


def test_a_run_trains_on_all_pods_with_rank_0_on_the_launcher(pods):
    result = pods.run("--logging_freq", "1", MAX_STEP="7")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr.count(" MAX_STEP ") == 1, result.stderr
    flags = pods.checkout.flags()
    assert (flags["logging_freq"], flags["device"]) == ("1", "cpu")
    hosts = (pods.record / "hostfile").read_text().splitlines()
    # The launcher by the name under which it knows itself.
    assert hosts == ["job-launcher-0-0 slots=2", "job-node-0-0.job slots=2", "job-node-0-1.job slots=2"]
    training = [line for line in pods.checkout.calls().splitlines() if " train " in line]
    assert len(training) == 1 and "-n 6 " in training[0] and "ppr:2:node" in training[0]


def test_open_mpi_4_and_5_get_their_own_variables(pods):
    # What Kubeflow Trainer sets.
    given = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_orte_set_default_slots": "2"}
    assert pods.run(**given, OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10").returncode == 0
    lines = (pods.record / "mpirun.env").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "_MCA_" in line)
    assert seen["OMPI_MCA_orte_default_hostfile"] == seen["PRTE_MCA_prte_default_hostfile"] != "/etc/mpi/hostfile"
    assert seen["OMPI_MCA_orte_keep_fqdn_hostnames"] == "true"
    assert seen["PRTE_MCA_prte_keep_fqdn_hostnames"] == "false"
    assert seen["OMPI_MCA_plm_rsh_args"] == seen["PRTE_MCA_plm_ssh_args"]
    assert seen["OMPI_MCA_plm_rsh_args"].endswith("container/ssh_config")
    assert "OMPI_MCA_orte_set_default_slots" not in seen


def test_variables_that_count_reach_the_other_pods(pods):
    given = {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1", "HF_TOKEN": "secret", "MINE": "1", "OTHER": "2"}
    pods.run(**given, MPZERO_PASS="MINE", MPZERO_NODE_NAME="ip-1")
    training = next(line for line in pods.checkout.calls().splitlines() if " train " in line)
    for name in ("NCCL_DEBUG", "HF_TOKEN", "MINE", "OMP_NUM_THREADS"):
        assert f"-x {name} " in training
    for name in ("OTHER", "MPZERO_NODE_NAME", "MPZERO_HOST", "MPZERO_HOSTFILE", "secret"):
        assert f"-x {name} " not in training
    assert "secret" not in training


def test_ranks_that_all_start_on_the_launcher_are_no_run(pods):
    (pods.record / "all_here").touch()
    assert "job-launcher-0-0 has 6" in refused(pods.run())
    assert not pods.trained()


@pytest.mark.parametrize(
    ("variables", "hosts", "words"),
    [
        ({"MPZERO_NODES": "4"}, HOSTS, ["4 nodes", "3 hosts", "MPZERO_NODES"]),
        ({"MPZERO_NODES": "1"}, HOSTS[1:], ["1 node", "mpzero-one-node"]),
        ({"MPZERO_NODES": ""}, HOSTS, ["MPZERO_NODES is not set"]),
        ({"NPROC": "4"}, HOSTS, ["2 slots", "4 ranks", "numProcPerNode"]),
        ({}, [*HOSTS, HOSTS[0]], ["lists job-node-0-0.job twice"]),
        ({}, [], ["does not list any hosts"]),
        ({"MPZERO_HOSTFILE": "/no/such/file"}, HOSTS, ["hostfile /no/such/file"]),
        ({"MPZERO_GPUS": "4"}, HOSTS, ["4 GPUs", "2 ranks", "numProcPerNode"]),
        ({"MPZERO_NODES": "a[$(touch hacked)]"}, HOSTS, ["must be an integer"]),
        ({"CHECK_NODES": "perhaps"}, HOSTS, ["CHECK_NODES=perhaps"]),
    ],
)
def test_what_contradicts_the_job_is_one_sentence(pods, variables, hosts, words):
    pods.list_hosts(hosts)
    error = refused(pods.run(**variables))
    assert all(word in error for word in words)
    assert not pods.trained()
    assert not (pods.checkout.root / "hacked").exists()


@pytest.mark.parametrize(
    "line", ["job-node-0-0.job", "job-node-0-0.job slots=0", "-oProxyCommand=x slots=2", "a b slots=2"]
)
def test_a_hostfile_that_cannot_be_read_names_its_line(pods, line):
    pods.hostfile.write_text(f"# a comment\n\n{line}\n")
    assert f"Line 3 of {pods.hostfile} is '{line}'" in refused(pods.run())


def test_a_pod_that_never_answers_is_named_and_the_status_asks_for_another_start(pods):
    (pods.record / "gone.job-node-0-1.job").touch()
    # Not so short that it is over before a busy machine has asked once.
    result = pods.run(MPZERO_WAIT="4")
    error = refused(result, 3)
    assert "1 pod of 3" in error and "job-node-0-1.job (ssh: connect to host" in error
    assert "Waiting for 1 pod of 3: job-node-0-1.job" in result.stdout
    assert not pods.trained()


def test_a_pod_that_is_late_is_waited_for(pods):
    gone = pods.record / "gone.job-node-0-0.job"
    gone.touch()
    process = pods.start()
    for line in process.stdout:
        if "Waiting for 1 pod" in line:
            gone.unlink()
    assert process.wait(60) == 0
    assert pods.trained()


def test_sigterm_while_pods_are_awaited_ends_the_wait(pods):
    (pods.record / "gone.job-node-0-0.job").touch()
    process = pods.start()
    while "Waiting for 1 pod" not in process.stdout.readline():
        pass
    stop(process, 130)  # nothing was saved


def test_sigterm_during_the_survey_blames_no_pod(pods):
    """The last pod's survey is slow, and the others are done."""
    survey = pods.checkout.root / "container/survey"
    slow = 'if [[ ${POD:-} == job-node-0-1 ]]; then : >"$RECORD/surveying"; sleep 5; fi\n'
    survey.write_text(survey.read_text().replace("set -euo pipefail", f"{slow}set -euo pipefail"))
    assert "job-node-0-1" not in stop(pods.start_and_wait_for("surveying"), 130)
    assert not pods.trained()


@pytest.mark.parametrize(
    ("shown", "status", "words"),
    [
        # The launcher has two, and the others none, as with an older Kubeflow Trainer.
        (
            '[[ -n ${POD:-} ]] || printf "GPU 0: A\\nGPU 1: B\\n"',
            2,
            ["job-node-0-0.job has 0 GPUs", "resourcesPerNode"],
        ),
        # One was lost: another start may get other nodes.
        ('echo "GPU 0: A"', 3, ["has 1 GPU", "MPZERO_GPUS"]),
    ],
)
def test_pods_with_fewer_gpus_than_asked_for_are_refused(pods, shown, status, words):
    pods.checkout.program(pods.checkout.bin / "nvidia-smi", f"#!/bin/bash\n{shown}\n")
    error = refused(pods.run(MPZERO_GPUS="2"), status)
    assert all(word in error for word in words)


FAILED = "Failed to initialize NVML: Driver/library version mismatch"


def fail_driver(pods, where: str = "job-node-0-1", device: bool = True) -> None:
    """nvidia-smi of a pod cannot talk to the driver, and that of the others shows two GPUs."""
    pods.checkout.program(
        pods.checkout.bin / "nvidia-smi",
        f"#!/bin/bash\n[[ ${{POD:-}} != {where} ]] || "
        f'{{ printf "{FAILED}\\nNVML library version: 550.54\\n"; exit 18; }}\n'
        'printf "GPU 0: A\\nGPU 1: B\\n"\n',
    )
    pods.variables["NVIDIA_DEVICES"] = str(pods.record / "dev")
    (pods.record / "dev").mkdir()
    if device:
        (pods.record / "dev/nvidia0").touch()


@pytest.mark.parametrize("asked", ["2", ""])
def test_a_driver_that_fails_is_the_node_s_and_the_job_starts_again(pods, asked):
    fail_driver(pods)
    error = refused(pods.run(MPZERO_GPUS=asked), 3)
    assert all(word in error for word in ("job-node-0-1.job", FAILED, "kubectl cordon ip-10-0-0-16"))
    assert "Kubeflow" not in error
    assert not pods.trained()


def test_no_driver_is_judged_for_a_run_on_cpus(pods):
    fail_driver(pods)
    assert pods.run(MPZERO_GPUS="0").returncode == 0


def test_a_pod_that_was_given_no_gpu_is_not_a_driver_that_fails(pods):
    fail_driver(pods, device=False)
    error = refused(pods.run(MPZERO_GPUS="2"))
    assert "job-node-0-1.job has 0 GPUs" in error and "resourcesPerNode" in error


def make_efa(record, numbers, opened) -> None:
    driver = record / "drivers/efa"
    driver.mkdir(parents=True)
    for number in numbers:
        device = record / f"devices/{number}"
        (device / f"infiniband_verbs/uverbs{number}").mkdir(parents=True)
        (device / "driver").symlink_to(driver)
        (record / f"infiniband/rdmap{number}").mkdir(parents=True)
        (record / f"infiniband/rdmap{number}/device").symlink_to(device)
    (record / "verbs").mkdir()
    for number in opened:
        (record / f"verbs/uverbs{number}").touch()


@pytest.mark.parametrize(
    ("opened", "asked", "words"),
    [
        ([1], "4", ["1 EFA device", "MPZERO_EFA", "vpc.amazonaws.com/efa"]),
        # What the node has and no pod asked for is no silent TCP.
        ([], "", ["4 EFA devices", "NETWORK=socket"]),
    ],
)
def test_a_pod_without_the_efa_devices_of_its_node_is_refused(pods, opened, asked, words):
    make_efa(pods.record, range(4), opened)
    error = refused(pods.run(MPZERO_EFA=asked))
    assert all(word in error for word in words)
    assert asked or pods.run(NETWORK="socket").returncode == 0


def test_pods_with_another_image_are_refused(pods):
    # The other pods have another program: their checkout is a copy.
    other = pods.checkout.root.parent / "other"
    shutil.copytree(pods.checkout.root, other, symlinks=True)
    (other / "build/bin/mpzero").write_text("another build")
    ssh = SSH.replace('bash -c "$*"', f'bash -c "${{*//$(printf %s "$CHECKOUT")/{other}}}"')
    pods.checkout.program(pods.checkout.bin / "ssh", ssh)
    error = refused(pods.run(CHECKOUT=str(pods.checkout.root)))
    assert "runs a different build of mpzero than job-launcher-0-0.job" in error
    assert "trainer.image" in error


@pytest.mark.parametrize(("doctor", "status"), [("1", 3), ("2", 2), ("122", 3)])
def test_the_doctor_ends_a_job_that_would_fail(pods, doctor, status):
    assert ("kubectl cordon" in refused(pods.run(FAKE_DOCTOR=doctor), status)) == (status == 3)
    assert not pods.trained()


def test_the_doctor_is_asked_like_the_run(pods):
    assert pods.run(NETWORK="socket").returncode == 0
    words = (pods.record / "doctor.flags").read_text().split()
    for word in ("--quick", "--network", "socket", "--device", "cpu", "--checkpoint_dir"):
        assert word in words
    (pods.record / "doctor.flags").unlink()
    assert pods.run(CHECK_NODES="false", MPZERO_JOB="uid-2").returncode == 0
    assert not (pods.record / "doctor.flags").exists()


@pytest.mark.parametrize("command", ["doctor", "train"])
def test_an_mpi_that_cannot_start_is_a_mistake_in_the_job(pods, command):
    result = pods.run(FAKE_MPI_FAILS=command)
    assert result.returncode == 2, result.stdout + result.stderr
    assert not list(pods.checkpoints.glob("mpi_start*"))


@pytest.mark.parametrize(("ends", "status"), [("2", 2), ("1", 1), ("75", 75), ("137", 1), ("134", 1)])
def test_the_status_of_the_run_is_that_of_the_pod(pods, ends, status):
    result = pods.run(FAKE_EXIT=ends)
    assert result.returncode == status, result.stdout + result.stderr
    assert ("SIGKILL" in result.stdout and "OOMKilled" in result.stdout) == (ends == "137")


def test_a_job_whose_starts_save_nothing_fails_for_good(pods):
    for _ in range(3):
        assert pods.run(FAKE_EXIT="1", MAX_RESTARTS="2").returncode == 1
    result = pods.run(FAKE_EXIT="1", MAX_RESTARTS="2")
    assert result.returncode == 77, result.stdout + result.stderr
    assert "started 3 times in a row without saving" in result.stderr
    # Another JobSet of that name starts anew.
    assert pods.run(FAKE_EXIT="1", MAX_RESTARTS="2", MPZERO_JOB="uid-2").returncode == 1


def test_a_start_that_saves_sets_the_count_back(pods):
    for _ in range(2):
        pods.run(FAKE_EXIT="1", MAX_RESTARTS="2")
    pods.save_and_stop(MAX_RESTARTS="2")
    for _ in range(3):
        assert pods.run(FAKE_EXIT="1", MAX_RESTARTS="2").returncode == 1
    assert pods.run(FAKE_EXIT="1", MAX_RESTARTS="2").returncode == 77


def test_sigterm_has_the_ranks_save_and_the_next_start_resumes_whatever_began_the_run(pods):
    assert "qwen3_tiny-2steps" in pods.save_and_stop()
    result = pods.run("--overwrite", "--resume_from_checkpoint=elsewhere")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "resumes from its own checkpoint" in result.stdout
    words = (pods.record / "mpzero.flags").read_text()
    assert "--overwrite" not in words and "elsewhere" not in words
    # The run is done: nothing counts any longer.
    assert list(pods.checkpoints.glob("starts.*")) == []


def make_link(path):
    path.symlink_to("/etc/hostname")


def test_a_record_that_others_have_damaged_does_not_let_overwrite_count_again(pods):
    pods.save_and_stop()
    record = pods.checkpoints / "starts.uid-1.txt"
    assert record.is_file() and not record.is_symlink()
    for damage in (lambda path: path.write_text(""), os.mkfifo, make_link):
        record.unlink()
        damage(record)
        (pods.record / "mpzero.flags").unlink()
        error = refused(pods.run("--overwrite"))
        assert str(record) in error and "--overwrite" in error
        assert not pods.trained()
        # Without the flag nothing can be lost.
        result = pods.run(FAKE_EXIT="1")
        assert result.returncode == 1 and str(record) in result.stderr
        assert record.read_text().startswith("1 unsaved ") and not record.is_symlink()


def test_the_record_of_an_earlier_mpzero_counts(pods):
    pods.checkpoints.mkdir()
    (pods.checkpoints / "starts.uid-1.txt").write_text("2 saved 1.2.3\n")
    (pods.checkpoints / "latest").write_text("qwen3_tiny-2steps\n")
    assert pods.run("--overwrite").returncode == 0
    assert "--overwrite" not in (pods.record / "mpzero.flags").read_text()


SURVEY = "survey job-node-0-1.job gpus=0 efa=0/0 cores=2 shm=64 programs=0123456789abcdef node=n1"
COMMAND = "PATH[$(id>canary)]"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, COMMAND) for field in SURVEY.split()[2:]),
        ("efa=0/0", f"0/{COMMAND}"),
        ("gpus=0", "08"),
        ("gpus=0", "9999999"),
        ("gpus=0", ""),
        ("node=n1", "$(id>canary)"),
    ],
)  # fmt: skip
def test_what_a_pod_answers_is_data(pods, field, value):
    answer = SURVEY.replace(field, f"{field.partition('=')[0]}={value}")
    ssh = SSH.replace(
        "POD=$", f"""[[ $host != job-node-0-1.job || $* != *survey* ]] || {{ echo '{answer}'; exit; }}\nPOD=$"""
    )
    pods.checkout.program(pods.checkout.bin / "ssh", ssh)
    error = refused(pods.run(MPZERO_GPUS="0", MPZERO_EFA="0"), 3)
    assert "job-node-0-1.job" in error
    assert not list(pods.checkout.root.parent.rglob("canary"))


def test_pods_that_lack_a_library_are_named_and_nothing_trains(pods):
    ldd = '#!/bin/bash\n[[ $POD != job-node-* ]] || printf "\\tlibmpi.so.40 => not found\\n"\n'
    pods.checkout.program(pods.checkout.bin / "ldd", ldd)
    error = refused(pods.run())
    assert "job-node-0-0.job,job-node-0-1.job: " in error and "libmpi.so.40" in error
    assert not pods.trained()


def test_pods_give_mpi_the_interface_of_their_route(pods):
    tables = pods.record / "tables"
    tables.mkdir()
    (tables / "route").write_text("Iface\neth7\t00000000\t0101FEA9\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
    result = pods.run(NETWORK_TABLES=str(tables))
    assert result.returncode == 0 and result.stdout.count("mpzero: MPI uses the network eth7 ") == 1, result.stderr
    names = (pods.record / "mpirun.env").read_text().splitlines()
    for name in ("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if", "PRTE_MCA_prte_if"):
        assert f"{name}_include=eth7" in names


def test_one_node_needs_no_ssh(pods):
    pods.list_hosts(["job-launcher-0-0.job"])
    assert pods.run(MPZERO_NODES="1").returncode == 0
    assert "ssh job-" not in pods.checkout.calls()


def test_a_job_that_cannot_be_counted_says_so(pods):
    result = pods.run(MPZERO_JOB="")
    assert result.returncode == 0
    assert "MPZERO_JOB is not set: starts that save no checkpoint are not counted" in result.stderr
    assert list(pods.checkpoints.glob("starts.*")) == []
