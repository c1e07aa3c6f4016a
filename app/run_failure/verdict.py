"""Determines the cause of a failed start: verdict_of(evidence), without I/O.

Missing evidence alone is no proof: a rank without evidence is the cause only if another rank on its host saw it
dead or stopped, or if the cluster reports its host as down. Without start.json, whose number of ranks shows which
evidence is missing, no rank is blamed. The first rule that applies determines the cause:

    1  a user error; not attributed to a rank
    2  ranks without evidence that were already dead in the first view of their host in which any rank is dead; if no
       rank failed otherwise, also ranks that the evidence of a signal lists
    3  ranks that an error reports as its cause
    4  the rank with a device error
    5  ranks whose process was stopped, unless a rank reported an error
    6  hosts without evidence; unknown, unless the cluster reports them as down
    7  the rank with the first error other than a communicator error
    8  ranks that delay a collective; unknown if there are none
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from run_failure.collectives import Held, find_awaited, find_lag, find_unfinished
from run_failure.evidence import Evidence, Record

CHECK_AGAIN = "if it recurs on the same host, check that host"
HOST_REMEDY = "inspect the process with `py-spy dump --native` or gdb, and check its host's disks and memory"
GPU_REMEDY = "check dmesg for Xid messages, and nvidia-smi, on that host"
UNKNOWN_REMEDY = "see the output above; `mpzero doctor` tests the network between all hosts"


@dataclass(frozen=True)
class Verdict:
    ranks: tuple[int, ...]  # the cause; empty: unknown, or a user error
    reason: str  # one sentence without a final period
    remedy: str = ""  # one sentence without a final period
    user_error: bool = False
    silent_hosts: tuple[str, ...] = ()  # hosts without evidence; the cause depends on their state


def verdict_of(evidence: Evidence, down: frozenset[str] = frozenset()) -> Verdict | None:
    """Returns None if the evidence shows no failure. `down`: hosts that the cluster reports as down."""
    verdict = cause_of(evidence, down)
    if verdict is None or verdict.user_error or evidence.has_start:
        return verdict
    file = f"failures/{evidence.start}/start.json"
    return Verdict((), f"{file} is missing, so other ranks may have failed first: {verdict.reason}", UNKNOWN_REMEDY)


def cause_of(evidence: Evidence, down: frozenset[str]) -> Verdict | None:
    records = evidence.records
    wrote = [record for record in records if record.wrote]
    by_why = {
        why: sorted((one for one in wrote if one.why == why), key=order(evidence)) for why in {r.why for r in wrote}
    }
    if mistakes := by_why.get("user_error"):
        return Verdict((), mistakes[0].error or "a user error", user_error=True)
    lost = [record for record in records if record.died_first]
    if not {"error", "device_error", "stuck"} & by_why.keys():
        # The launcher also kills ranks that wrote evidence of a signal, but only after a rank has failed.
        lost += [records[rank] for rank in named_by(by_why.get("signal", [])) if not records[rank].died_first]
    if lost:
        return of_lost(records, lost)
    errors = [*by_why.get("device_error", []), *by_why.get("error", []), *by_why.get("communicator_error", [])]
    if named := named_by(errors):
        first = next(record for record in errors if record.culprits)
        return Verdict(tuple(named), f"{rank_list(named)}: {error_of(first)} ({where(first)})", CHECK_AGAIN)
    if errors and errors[0].why == "device_error":
        return of_failed(errors[0])
    failed = bool(errors or by_why.get("stuck"))
    # If a suspended run receives a stop request, its ranks were stopped without a failure.
    stopped = [record for record in records if record.stopped and (failed or not record.wrote)]
    if stopped and not by_why.get("error"):
        return of_stopped(records, stopped)
    if not failed:
        return None
    if silent := evidence.silent_hosts:
        return of_silent(evidence, silent, down, errors)
    if by_why.get("error"):
        return of_failed(by_why["error"][0])
    return of_broken(records, errors) if errors else of_stuck(records)


def named_by(records: list[Record]) -> list[int]:
    return sorted({rank for record in records for rank in record.culprits})


def order(evidence: Evidence) -> Callable[[Record], tuple]:
    """The rank that created the file `first` sorts first regardless of its time, because the clocks of hosts differ."""
    return lambda record: (record.rank != evidence.first, record.time, record.rank)


def of_lost(records: tuple[Record, ...], lost: list[Record]) -> Verdict:
    later = [record for record in records if record.seen == "dead" and not record.died_first]
    since = f"; {names(later)} {have(later)} since ended" if later else ""
    reason = f"{names(lost)} ended without reporting an error {where(farthest(records))}{awaited(records, lost)}{since}"
    remedy = "check that rank's last output and, on its host, dmesg (out of memory, Xid messages)"
    return Verdict(ranks_of(lost), reason, remedy)


def of_stopped(records: tuple[Record, ...], stopped: list[Record]) -> Verdict:
    reason = (
        f"{names(stopped)} {have(stopped)} not responded {where(farthest(records))}"
        f"{awaited(records, stopped)}; the process is stopped"
    )
    return Verdict(ranks_of(stopped), reason, "check that host's memory and disks, and what stopped the process")


def of_failed(record: Record) -> Verdict:
    reason = f"rank {record.rank}: {error_of(record)} ({where(record)}, on {record.host or 'an unknown host'})"
    return Verdict((record.rank,), reason, CHECK_AGAIN)


def of_broken(records: tuple[Record, ...], errors: list[Record]) -> Verdict:
    """NCCL reports a lost peer on innocent ranks: the cause may be a rank that is late, in any state."""
    first = errors[0]
    if lag := find_lag(list(records), "queued"):
        return of_lag(records, lag, "queued")
    reason = f"communicator errors on {names(errors)}; first error, on rank {first.rank}: {error_of(first)}"
    return Verdict((), f"{reason} ({where(first)})", UNKNOWN_REMEDY)


def of_silent(evidence: Evidence, silent: tuple[str, ...], down: frozenset[str], errors: list[Record]) -> Verdict:
    hosts = [host for host in silent if host in down]
    ranks = [record for record in evidence.records if record.host in (hosts or silent)]
    what = f"the ranks on {some(hosts or silent)} wrote no failure report"
    if errors:
        what += f", and rank {errors[0].rank} had an error: {error_of(errors[0])}"
    what += f" ({where(farthest(evidence.records))}{awaited(evidence.records, ranks)})"
    if hosts:
        return Verdict(ranks_of(ranks), f"{some(hosts)} is down: {what}", "check that host")
    return Verdict(
        (), f"{what}: its host may be down, out of memory or unreachable", UNKNOWN_REMEDY, silent_hosts=silent
    )


def of_stuck(records: tuple[Record, ...]) -> Verdict:
    present = [record for record in records if record.channels or record.wrote]
    idle = max(record.idle for record in present)
    if any(record.phase == "network" for record in present):
        return not_connected(present, idle)
    for measure in ("queued", "started", "completed"):
        if lag := find_lag(present, measure):
            return of_lag(records, lag, measure)
    if held := find_unfinished(present):
        group = [records[rank] for rank in held.late]
        reason = f"{names(group)} reached {held}, {where(group[0])}, but have not completed it for {held.waited:.0f} s"
        remedy = "check the network between these ranks, and dmesg for Xid messages on their hosts"
        return Verdict((), reason, remedy)
    first = present[0]
    if len(records) == 1:
        return Verdict((0,), f"{names([first])} has made no progress for {idle:.0f} s {where(first)}", HOST_REMEDY)
    held = find_awaited(present, [first.rank])
    reason = f"no rank has made progress for {idle:.0f} s {where(first)}{f', all ranks in {held}' if held else ''}"
    return Verdict(
        (), reason, "raise --stuck_after if this phase can take that long; otherwise, check the network and the disks"
    )


def of_lag(records: tuple[Record, ...], lag: Held, measure: str) -> Verdict:
    late = [records[rank] for rank in lag.late]
    if measure == "completed":
        reason = f"{names(late)} reached {lag} with the others, {where(late[0])}, but did not complete it"
        return Verdict(lag.late, reason, f"check the network counters of that host, and {GPU_REMEDY}")
    on_gpu = " on the GPU" if measure == "started" else ""
    reason = (
        f"{names(late)} {have(late)} not reached {lag}{on_gpu}, {where(late[0])}, while others have waited in it for "
        f"{max(lag.waited, 0):.0f} s"
    )
    return Verdict(lag.late, reason, GPU_REMEDY if on_gpu else HOST_REMEDY)


def not_connected(present: list[Record], idle: float) -> Verdict:
    """All ranks stop at the same point if the network blocks all traffic, but some continue if it blocks only some."""
    lag = find_lag(present, "queued")
    late = [record for record in present if lag is None or record.rank in lag.late]
    complaint = next((f": {record.error}" for record in late if record.why == "stuck" and record.error), "")
    subject = f"unlike the others, {names(late)} {have(late)} not connected" if lag else "the hosts have not connected"
    remedy = "check that all hosts of the job can reach each other on every port (`mpzero doctor`)"
    return Verdict(lag.late if lag else (), f"{subject} for {idle:.0f} s{complaint}", remedy)


def awaited(records: tuple[Record, ...], gone: list[Record]) -> str:
    held = find_awaited(list(records), list(ranks_of(gone)))
    return f", while others wait for it in {held}" if held else ""


def farthest(records: tuple[Record, ...]) -> Record:
    """The record with the highest step, which approximates the step of ranks without evidence."""
    return max(records, key=lambda record: record.step)


def where(record: Record) -> str:
    return {
        "network": "while connecting the hosts",
        "setup": "during setup",
        "first_step": f"in step {record.step}, the run's first",
        "training": f"in step {record.step}",
        "validation": f"during validation after step {record.step}",
        "checkpoint": f"during checkpointing after step {record.step}",
        "ending": f"during shutdown after step {record.step}",
    }[record.phase]


def error_of(record: Record) -> str:
    return record.error.rstrip(". ") or "an unspecified error"


def names(records: list[Record], most: int = 8) -> str:
    words = [f"rank {one.rank} on {one.host or 'an unknown host'} (pid {one.pid})" for one in records[:most]]
    return ", ".join(words + [f"{len(records) - most} more ranks"] * (len(records) > most))


def some(hosts: list[str] | tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return ", ".join(hosts[:most]) + more


def rank_list(ranks: list[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"


def have(records: list[Record]) -> str:
    return "has" if len(records) == 1 else "have"


def ranks_of(records: list[Record]) -> tuple[int, ...]:
    return tuple(record.rank for record in records)
