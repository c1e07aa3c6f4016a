"""Finds collectives that do not complete. Their groups contain all ranks of the run or, in two-level ZeRO, the ranks of
one node or the ranks with the same local rank on all nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from run_failure.evidence import Channel, Collective, Group, Record


@dataclass(frozen=True)
class Held:
    """A collective that a group of ranks has not completed."""

    channel: str
    ranks: Group
    sequence: int
    late: tuple[int, ...] = ()  # late ranks of the group
    collective: Collective | None = None  # record of the rank that has waited longest
    waited: float = -1.0  # seconds

    def __str__(self) -> str:
        ranks = describe_group(self.ranks)
        if self.collective is None:
            return f"collective {self.sequence} of {self.channel}{f' ({ranks})' if ranks else ''}"
        size = show_bytes(self.collective.bytes)
        facts = f"{size}, {ranks}" if ranks else size
        return f"{self.collective.operation} {self.sequence} of {self.channel} ({facts})"


def groups_of(records: list[Record]) -> dict[tuple[int, str, Group], dict[int, Channel]]:
    """Channels of each group, by rank. All ranks open their channels in the same order."""
    groups: dict[tuple[int, str, Group], dict[int, Channel]] = {}
    for record in records:
        for number, channel in enumerate(record.channels):
            groups.setdefault((number, channel.name, channel.ranks), {})[record.rank] = channel
    return groups


def find_lag(records: list[Record], measure: str) -> Held | None:
    """Returns the collective with the longest wait among those that only some ranks of their group have reached.
    `measure`: "queued", "started" or "completed". Omits late ranks that wait in a collective of another group, which
    delays them."""
    by_rank = {record.rank: record for record in records}
    worst = None
    for (_, name, group), channels in groups_of(records).items():
        places = {rank: getattr(channel, measure) for rank, channel in channels.items()}
        behind = min(places.values())
        late = [rank for rank, place in places.items() if place == behind]
        if len(late) == len(places):
            continue
        lag = held(name, group, behind + 1, [channels[rank] for rank, place in places.items() if place > behind])
        if measure != "completed":
            late = [rank for rank in late if not is_held_elsewhere(by_rank[rank], group, measure)]
        if late and (worst is None or lag.waited > worst.waited):
            worst = replace(lag, late=tuple(late))
    return worst


def is_held_elsewhere(record: Record, group: Group, measure: str) -> bool:
    others = [channel for channel in record.channels if channel.ranks != group]
    return any(getattr(channel, measure) > channel.completed for channel in others)


def find_unfinished(records: list[Record]) -> Held | None:
    """Returns the oldest collective that all recorded ranks of a group have queued and not completed. Ignores the group
    of all ranks. `late` contains the whole group."""
    worst = None
    for (_, name, group), channels in groups_of(records).items():
        completed = {channel.completed for channel in channels.values()}
        sequence = min(completed) + 1
        if group.count == 0 or len(completed) > 1 or any(one.queued < sequence for one in channels.values()):
            continue
        one = held(name, group, sequence, list(channels.values()))
        if worst is None or one.waited > worst.waited:
            worst = replace(one, late=tuple(channels))
    return worst


def find_awaited(records: list[Record], gone: list[int]) -> Held | None:
    """Returns the oldest collective in which other ranks wait for the ranks `gone`."""
    oldest = None
    for record in records:
        for channel in record.channels if record.rank not in gone else ():
            one = channel.find(channel.completed + 1)
            if one is None or not any(rank in channel.ranks for rank in gone):
                continue
            if oldest is None or one.seconds > oldest.waited:
                oldest = Held(channel.name, channel.ranks, one.sequence, collective=one, waited=one.seconds)
    return oldest


def held(name: str, group: Group, sequence: int, channels: list[Channel]) -> Held:
    known = [one for one in (channel.find(sequence) for channel in channels) if one is not None]
    longest = max(known, key=lambda one: one.seconds, default=None)
    return Held(name, group, sequence, collective=longest, waited=longest.seconds if longest else -1.0)


def describe_group(group: Group) -> str:
    """ "ranks 0-7" or "ranks 1, 5"; empty for the group of all ranks."""
    if group.count == 0:
        return ""
    last = group.first + (group.count - 1) * group.stride
    if group.stride == 1 and group.count > 2:
        return f"ranks {group.first}-{last}"
    if group.count > 4:
        return f"ranks {group.first}, {group.first + group.stride} to {last}"
    ranks = ", ".join(str(group.first + i * group.stride) for i in range(group.count))
    return f"rank{'' if group.count == 1 else 's'} {ranks}"


def show_bytes(count: int) -> str:
    """ "1.5 MiB" """
    units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
    return next((f"{count / size:.1f} {unit}" for size, unit in units if count >= size), f"{count} B")
