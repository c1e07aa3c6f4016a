"""Determines the next action for a Slurm job at each start and at the end of its run, and requests it from Slurm.

    command.py     the program, started by scripts/requeue.sh: collects facts, decides and acts
    table.py       the actions by event and condition
    decision.py    decide(state, event) -> action, from this table, without I/O
    state.py       state of a job across its starts, in CHECKPOINT_DIR/restarts.JOB.txt
    checkpoint.py  the newest checkpoint of a folder
    reports.py     stop.json and doctor.json, which mpzero writes
    nodes.py       maps host names to Slurm nodes, and finds nodes that can be excluded from a job
    return_to_queue.py   requeues the job without the faulty nodes
    slurm.py       runs scontrol, squeue and sinfo
    starts.py      counts the starts of a Kubernetes job: CHECKPOINT_DIR/starts.JOB.txt
    log.py         the job's log

app/run_failure finds the cause of a failed run, and app/run_files reads and replaces files. The package requires only
Python 3.8 and its standard library, because nodes of a cluster may have no newer version.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "app"))
