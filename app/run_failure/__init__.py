"""Determines the cause of a failed start from the evidence that its ranks left in failures/START.

    evidence.py     reads the evidence: a record for each rank
    collectives.py  the collectives that ranks wait in, and the ranks that are behind
    verdict.py      verdict_of(evidence): the cause, a function without I/O
    merging.py      the newest start of a folder -> failure.json, the report for the user, the exit status

Standard library only, and Python from 3.8 on: scripts/requeue uses it on nodes that may have no other.
"""
