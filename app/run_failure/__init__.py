"""Determines why an attempt of a run failed, from the evidence that its ranks wrote to failures/START.

    evidence.py     reads the evidence into one record per rank
    collectives.py  finds the collectives in which ranks wait, and the ranks that delay them
    verdict.py      verdict_of(evidence) returns the cause, without I/O
    merging.py      writes failure.json, the report for the user and the exit status of a folder's latest attempt

Requires only Python 3.8 and its standard library: scripts/requeue runs on nodes that may have no newer version.
"""
