"""Determines the cause of a failure: verdict_of(evidence), without I/O.

The first rule that applies determines the cause (docs/stopping-and-failures.md#failure-attribution). Missing evidence
alone is no proof: a rank without evidence is the cause only if another rank on its host saw it dead or stopped, or if
the cluster reports its host as down. Provisional evidence counts as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from run_failure.collectives import find_awaited, find_lag
from run_failure.evidence import Evidence, Record

HOST_REMEDY = "check the memory and disks of that host, and dmesg for out-of-memory and Xid messages"
RANK_REMEDY = f"inspect the process with `py-spy dump --native` or gdb; {HOST_REMEDY}"
UNKNOWN_REMEDY = "see the output above; `mpzero doctor` tests the network between all hosts"
SLOW_REMEDY = "raise --stuck_after if this phase can take that long; otherwise, check the network and the disks"


@dataclass(frozen=True)
class Verdict:
    ranks: tuple[int, ...]  # the cause; empty: unknown, or a user error
    reason: str  # one sentence without a final period
    remedy: str = ""  # one sentence without a final period
    user_error: bool = False
    silent_hosts: tuple[str, ...] = ()  # hosts without evidence; the cause depends on their state


def verdict_of(evidence: Evidence, down: frozenset[str] = frozenset()) -> Verdict | None:
    """Returns None if the evidence shows no failure. `down`: hosts that the cluster reports as down."""
    records = evidence.records

    def wrote(*whys: str) -> list[Record]:
        # The rank that created the `first` file sorts first, whatever its timestamp, because clocks of hosts differ.
        found = [record for record in records if record.why in whys]
        return sorted(found, key=lambda one: (whys.index(one.why), one.rank != evidence.first, one.time))

    if mistakes := wrote("user_error", "shared_error"):
        first = mistakes[0]
        failed = [records[rank] for rank in first.culprits]
        faulty, hosts = ({record.host for record in some} for some in (failed, records))
        # In a job of two hosts, a single failed host is at fault.
        if faulty and faulty < hosts and 2 * len(faulty) < max(3, len(hosts)):
            return of_ranks(failed, f"{error_of(first)} ({where(first)})", HOST_REMEDY)
        return Verdict((), error_of(first), "see the output above", first.why == "user_error")
    if lost := [record for record in records if record.died_first]:
        return of_ranks(lost, f"ended without reporting an error {where_awaited(records, lost)}", HOST_REMEDY)
    errors = wrote("device_error", "error", "communicator_error")
    if first := next((record for record in errors if record.culprits), None):
        named = sorted({rank for record in errors for rank in record.culprits})
        return of_ranks([records[rank] for rank in named], f"{error_of(first)} ({where(first)})", HOST_REMEDY)
    if errors and errors[0].why == "device_error":
        return of_ranks(errors[:1], f"{error_of(errors[0])} ({where(errors[0])})", HOST_REMEDY)
    if not errors and not wrote("stuck"):
        return None
    stopped = [record for record in records if record.stopped]
    if stopped and not wrote("error"):
        return of_ranks(stopped, f"the process is stopped {where_awaited(records, stopped)}", HOST_REMEDY)
    if silent := evidence.silent_hosts:
        return of_silent(evidence, silent, down, errors)
    if errors and errors[0].why == "error":
        return of_ranks(errors[:1], f"{error_of(errors[0])} ({where(errors[0])})", HOST_REMEDY)
    return of_waiting(list(records), errors)


def of_ranks(ranks: Sequence[Record], what: str, remedy: str) -> Verdict:
    return Verdict(tuple(record.rank for record in ranks), f"{names(ranks)}: {what}", remedy)


def of_silent(evidence: Evidence, silent: tuple[str, ...], down: frozenset[str], errors: list[Record]) -> Verdict:
    hosts = [host for host in silent if host in down]
    ranks = [record for record in evidence.records if record.host in (hosts or silent)]
    error = f"; rank {errors[0].rank} had an error: {error_of(errors[0])}" if errors else ""
    what = f"wrote no failure report ({where_awaited(evidence.records, ranks)}){error}"
    if hosts:
        return of_ranks(ranks, f"{what}; the cluster reports {some(hosts)} as down", "check that host")
    host = "the host" if len(silent) == 1 else "the hosts"
    reason = f"the ranks on {some(silent)} {what}: {host} may be down, out of memory or unreachable"
    return Verdict((), reason, UNKNOWN_REMEDY, silent_hosts=silent)


def of_waiting(records: list[Record], errors: list[Record]) -> Verdict:
    """Returns the verdict on ranks that wait. NCCL also reports lost peers on ranks that are not at fault (`errors`),
    so any late rank may be the cause."""
    reported = [record for record in records if record.why == "stuck" and record.error]
    said = "".join(f"; rank {one.rank}: {error_of(one)}" for one in reported[:1])
    lag, on_gpu = find_lag(records, "queued"), ""
    if lag is None and not errors:
        lag, on_gpu = find_lag(records, "started"), " on the GPU"
    if lag is not None:
        late = [records[rank] for rank in lag.late]
        waited = f"other ranks have waited for {max(lag.waited, 0):.0f} s"
        reason = f"did not reach {lag}{on_gpu}, {where(late[0])}; {waited}"
        return of_ranks(late, reason + said, RANK_REMEDY)
    if errors:
        reason = f"communicator error on {names(errors)}: {error_of(errors[0])} ({where(errors[0])})"
        return Verdict((), reason, UNKNOWN_REMEDY)
    idle = max(record.idle for record in records)
    oldest = find_awaited(records)
    reason = (
        f"no rank has made progress for {idle:.0f} s {where(records[0])}{f', waiting in {oldest}' if oldest else ''}"
    )
    return Verdict((), reason + said, SLOW_REMEDY)


def where_awaited(records: Sequence[Record], gone: Sequence[Record]) -> str:
    # The highest step approximates the step of ranks without evidence.
    place = where(max(records, key=lambda record: record.step))
    held = find_awaited(list(records), tuple(record.rank for record in gone))
    return f"{place}, while other ranks wait in {held}" if held else place


def where(record: Record) -> str:
    return {
        "network": "while connecting the hosts",
        "setup": "during setup",
        "first_step": f"in step {record.step}, the first after startup",
        "training": f"in step {record.step}",
        "validation": f"during validation after step {record.step}",
        "checkpoint": f"during checkpointing after step {record.step}",
        "ending": f"during shutdown after step {record.step}",
    }[record.phase]


def error_of(record: Record) -> str:
    return record.error.rstrip(". ") or "an unspecified error"


def names(records: Sequence[Record], most: int = 8) -> str:
    words = [f"rank {one.rank} on {one.host or 'an unknown host'} (pid {one.pid})" for one in records[:most]]
    return ", ".join(words + [f"{len(records) - most} more ranks"] * (len(records) > most))


def some(hosts: Sequence[str], most: int = 4) -> str:
    return ", ".join(hosts[:most]) + (f" and {len(hosts) - most} more" if len(hosts) > most else "")
