"""Decides what happens to a Slurm job when it starts and when its run ends, and asks Slurm for it.

    command.py     the program: reads what happened, decides, acts; scripts/requeue.sh starts it
    table.py       the decisions: standing of the job × event -> action
    decision.py    decide(state, event) -> action, by that table, without input or output
    state.py       what a job keeps from one start to the next, in CHECKPOINT_DIR/restarts.JOB.txt
    checkpoint.py  the newest checkpoint of a folder
    reports.py     stop.json and doctor.json, which mpzero writes
    nodes.py       from host names to Slurm's nodes, and which of them a job can be kept off
    return_to_queue.py   puts the job back into the queue, without the nodes that are to blame
    slurm.py       scontrol, squeue and sinfo
    starts.py      the same for a job of Kubernetes: CHECKPOINT_DIR/starts.JOB.txt
    log.py         the job's log

app/run_failure judges why a run has failed; app/run_files reads and replaces the files. Standard library only, and any
Python from 3.8 on: a node of the cluster may have no other.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "app"))
