"""Finds collectives that do not complete. Their groups contain all ranks of the run or, in two-level ZeRO, the ranks of
one node or the ranks with the same local rank on all nodes."""

from __future__ import annotations

from dataclasses import dataclass

from run_failure.evidence import Channel, Collective, Group, Record


@dataclass(frozen=True)
class Held:
    """A collective that a group of ranks has not completed."""

    channel: str
    ranks: Group
    sequence: int
    collective: Collective | None  # record of the rank that has waited longest
    late: tuple[int, ...] = ()  # late ranks of the group

    @property
    def waited(self) -> float:
        return self.collective.seconds if self.collective else -1.0

    def __str__(self) -> str:
        operation = self.collective.operation if self.collective else "collective"
        return f"{operation} {self.sequence} of {self.channel}{describe_group(self.ranks)}"


def groups_of(records: list[Record]) -> dict[tuple[int, str, Group], dict[int, Channel]]:
    """Returns, for each group, the channel of each rank. All ranks open their channels in the same order."""
    groups: dict[tuple[int, str, Group], dict[int, Channel]] = {}
    for record in records:
        for number, channel in enumerate(record.channels):
            groups.setdefault((number, channel.name, channel.ranks), {})[record.rank] = channel
    return groups


def find_lag(records: list[Record], measure: str) -> Held | None:
    """Returns the collective with the longest wait among those that only some ranks of their group have reached.
    `measure`: "queued" or "started". Omits late ranks that wait for other ranks elsewhere."""
    groups = groups_of(records)
    waiting = {rank for channels in groups.values() for rank in waiting_ranks(channels, measure)}
    lags = []
    for (_, name, group), channels in groups.items():
        places = {rank: getattr(channel, measure) for rank, channel in channels.items()}
        behind = min(places.values())
        open_on = [channels[rank].find(behind + 1) for rank, place in places.items() if place > behind]
        late = tuple(rank for rank, place in places.items() if place == behind and rank not in waiting)
        if open_on and late:
            known = [one for one in open_on if one is not None]
            longest = max(known, key=lambda one: one.seconds, default=None)
            lags.append(Held(name, group, behind + 1, longest, late))
    return max(lags, key=lambda lag: lag.waited, default=None)


def waiting_ranks(channels: dict[int, Channel], measure: str) -> list[int]:
    """Ranks of a group that wait for other ranks, by their oldest open collective:

    open collective                      the rank
    none                                 does not wait
    another rank has not reached it      waits for that rank
    others have not completed it either  waits: all ranks have reached it (for example, the network fails)
    all others have completed it         does not wait: it hangs or is stopped
    """
    second = sorted(channel.completed for channel in channels.values())[:2][-1]
    return [
        rank for rank, channel in channels.items()
        if len(channels) > 1 and getattr(channel, measure) > channel.completed >= second
    ]  # fmt: skip


def find_awaited(records: list[Record], gone: tuple[int, ...] = ()) -> Held | None:
    """Returns the collective in which ranks have waited longest. `gone`: if set, considers only collectives in which
    other ranks wait for these ranks."""
    waits = []
    for record in records:
        for channel in record.channels if record.rank not in gone else ():
            one = channel.find(channel.completed + 1)
            if one is not None and (not gone or any(rank in channel.ranks for rank in gone)):
                waits.append(Held(channel.name, channel.ranks, one.sequence, one))
    return max(waits, key=lambda held: held.waited, default=None)


def describe_group(group: Group) -> str:
    """ " (ranks 0 to 7)" or " (ranks 1, 5, …, 13)"; empty for the group of all ranks."""
    if group.count == 0:
        return ""
    last = group.first + (group.count - 1) * group.stride
    if group.stride == 1 or group.count < 3:
        return f" (ranks {group.first} {'and' if group.count == 2 else 'to'} {last})"
    return f" (ranks {group.first}, {group.first + group.stride}, …, {last})"
