"""Names who is to blame for a failed start, from the evidence that its ranks have left in failures/START.

    evidence.py     reads the evidence: a record for each rank
    collectives.py  the collectives that ranks wait in, and the ranks that are behind
    verdict.py      verdict_of(evidence): who is to blame, a function without input or output
    merging.py      the newest start of a folder -> failure.json, the report for the user, the exit status

Standard library only, and Python from 3.8 on: scripts/requeue uses it on nodes that may have no other.
"""
