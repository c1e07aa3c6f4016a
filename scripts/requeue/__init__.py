"""Decides what happens to a Slurm job when it starts and when its run ends, and asks Slurm for it.

    command.py     the program: reads what happened, decides, acts; scripts/requeue.sh starts it
    table.py       the decisions: standing of the job × event -> action
    decision.py    decide(state, event) -> action, by that table, without I/O
    state.py       state of a job across its starts, in CHECKPOINT_DIR/restarts.JOB.txt
    checkpoint.py  the newest checkpoint of a folder
    reports.py     stop.json and doctor.json, which mpzero writes
    nodes.py       Slurm's nodes of host names, and which of them can be excluded from a job
    return_to_queue.py   puts the job back into the queue, without the nodes that are to blame
    slurm.py       scontrol, squeue and sinfo
    starts.py      the same for a job of Kubernetes: CHECKPOINT_DIR/starts.JOB.txt
    log.py         the job's log

app/run_failure finds the cause of a failed run; app/run_files reads and replaces files. Standard library only, Python
3.8 or later: nodes of the cluster may have no other.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "app"))
