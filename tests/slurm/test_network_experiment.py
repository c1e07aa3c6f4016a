"""sbatch sbatch/network_experiment.sbatch on a virtual cluster."""

import json

import pytest

pytestmark = pytest.mark.slurm

SCRIPT = "sbatch/network_experiment.sbatch"


@pytest.mark.usefixtures("built")
def test_two_nodes_compare_networks_and_layouts(run):
    """Two ranks a node, with mpzero and DeepSpeed's stead left out. EFA is asked for and not there: its rows say so."""
    results = run.folder / "results"
    job = run.submit(
        script=SCRIPT,
        NETWORKS="socket efa",
        STAGES="3",
        RANKS_PER_NODE="one level,auto,1",
        MAX_STEPS="4",
        WARM_UP="1",
        RESULTS_DIR="results",
    )
    assert job.state == "COMPLETED", job.text()
    assert job.output == run.folder / f"logs/mpzero-network_{job.number}.out"
    found = json.loads((results / "results.json").read_text())
    rows = {(row["network"], row["ranks_per_node"]): row for row in found["rows"]}
    assert len(rows) == 6
    one, two, four = (rows["socket", layout] for layout in ("one level", "auto", "1"))
    # Gathers at each pass, of three of four parts, or once a step of one of two: less with two levels.
    assert one["internode_megabytes"] > two["internode_megabytes"] > 0
    assert four["internode_megabytes"] == pytest.approx(1.5 * two["internode_megabytes"], rel=0.05)
    assert all(row["step"] > 0 for row in (one, two, four))
    assert all("has no effect on the CPU" in row["error"] for row in rows.values() if row["network"] == "efa")
    assert found["streams"]["gigabytes_per_second"] > 0
    assert found["streams"]["address"] in ("node0", "node1")
    text = (results / "table.md").read_text()
    assert text in job.text() and "Plain TCP streams between the first two hosts" in text
    assert (results / "steps.png").exists() and (results / "steps.svg").exists()
    assert not list(results.glob("*.h5")) and not (results / "none").exists()
    # Nothing of the user's was trained, resumed or moved.
    assert not (run.folder / "checkpoints").exists()


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("options", "flags", "variables", "sentence"),
    [
        (("--nodes=1",), (), {}, "only one node"),
        ((), ("--max_steps", "3"), {}, "sets --max_steps for each row"),
        ((), ("--overwrite",), {}, "sets --overwrite for each row"),
        ((), (), {"MAX_STEPS": "4", "WARM_UP": "4"}, "WARM_UP=4 must be less than MAX_STEPS=4"),
        ((), (), {"DEEPSPEED": "yes"}, "DEEPSPEED=yes must be true or false"),
        ((), (), {"SEQ_LENGTH": "100000"}, "max_position_embeddings"),
    ],
)
def test_a_mistake_is_one_sentence(run, options, flags, variables, sentence):
    job = run.submit(*options, script=SCRIPT, flags=flags, **variables)
    assert job.state == "FAILED", job.text()
    (line,) = [line for line in job.text().splitlines() if "error: " in line]
    assert sentence in line
    assert not (run.folder / "checkpoints").exists()
