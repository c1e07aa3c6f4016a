"""Which sequences a run trains at which rates, over any chain of resumes: the rules of docs/runs.md once more, for
test_resume_campaign.py. The rates follow transformers/optimization.py (5.23.0)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

NUM_TOKENS = 193
ALMOST_NOTHING = 0.01  # of the peak


@dataclass(frozen=True)
class Start:
    """What one start is given."""

    scheduler: str  # linear, cosine, constant_with_warmup, warmup_stable_decay
    warmup: int
    max_steps: int | None  # either this, or epochs
    epochs: int | None
    batch: int
    seq_length: int
    shuffle: bool
    way: str | None = None  # --schedule_on_resume

    @property
    def windows(self) -> int:
        return (NUM_TOKENS - 1) // self.seq_length

    def steps(self, step: int = 0, position: int = 0) -> int:
        """The last step of a run that is there."""
        if self.epochs is None:
            return self.max_steps
        return step + max(0, self.epochs * self.windows - position) // self.batch

    def saves_epoch(self, position: int) -> bool:
        """Whether --save_strategy epoch saves after the step that ends there."""
        epoch = self.windows // self.batch * self.batch
        return position // epoch > (position - self.batch) // epoch


@dataclass(frozen=True)
class Schedule:
    scheduler: str
    peak: float
    warmup: int
    total: int
    decay: int
    step: int = 0  # at this step it is at `time`, and each step advances it by `pace`
    time: float = 0
    pace: float = 1
    warmup_from: float | None = None
    held_from: float = math.inf

    def time_of(self, update: int) -> float:
        return self.time + (update - self.step) * self.pace

    def rate(self, update: int) -> float:
        time = min(self.time_of(update), self.held_from)
        if self.warmup_from is not None and time < 1:
            return self.warmup_from
        first, done = self.warmup_from or 0.0, time - 1
        if done < self.warmup:
            return first + (self.peak - first) * done / self.warmup
        decay = max(1, self.decay if self.scheduler == "warmup_stable_decay" else self.total - self.warmup)
        progress = min(1, max(0, 1 - (self.total - done) / decay))
        if self.scheduler == "constant_with_warmup":
            return self.peak
        if self.scheduler == "linear":
            return self.peak * (1 - progress)
        return self.peak * 0.5 * (1 + math.cos(math.pi * progress))


class RefusedError(Exception):
    pass


@dataclass
class Run:
    """A run between two of its starts."""

    start: Start
    schedule: Schedule
    last_step: int
    step: int = 0
    position: int = 0
    tokens: int = 0
    choices: list[str] = field(default_factory=list)

    def train_until(self, stop: int) -> None:
        self.position += (stop - self.step) * self.start.batch
        self.tokens += (stop - self.step) * self.start.batch * self.start.seq_length
        self.step = stop

    def sequences(self, update: int) -> range:
        first = self.position + (update - 1 - self.step) * self.start.batch
        return range(first, first + self.start.batch)


def new_schedule(start: Start, peak: float) -> Schedule:
    total = start.steps()
    decay = -(-total // 10) if start.scheduler == "warmup_stable_decay" else 0
    if start.scheduler == "warmup_stable_decay" and start.warmup + decay > total:
        raise RefusedError("warm-up and decay exceed the run")
    return Schedule(start.scheduler, peak, start.warmup, total, decay)


def begin(start: Start, peak: float) -> Run:
    if start.steps() < 1:
        raise RefusedError("the data does not fill a step")
    return Run(start, new_schedule(start, peak), start.steps())


def resumed_position(run: Run, start: Start) -> int:
    before = run.start
    if start.seq_length == before.seq_length:
        return run.position
    offset = run.position % before.windows * before.seq_length
    return run.position // before.windows * start.windows + min(start.windows, -(-offset // start.seq_length))


def resume(run: Run, start: Start, peak: float) -> Run:
    before, step = run.start, run.step
    position = resumed_position(run, start)
    last_step = start.steps(step, position)
    new = new_schedule(start, peak)
    if last_step <= step:
        raise RefusedError("nothing is left to train")
    kept = run.schedule
    by_sequences = start.epochs is not None and before.epochs is not None
    step_before, step_now = before.batch * before.seq_length, start.batch * start.seq_length
    if by_sequences:
        kept = replace(kept, step=step, time=kept.time_of(step), pace=kept.pace * step_now / step_before)
        longer = abs(before.steps() * step_before - start.steps() * step_now) >= max(step_before, step_now)
    else:
        longer = before.steps() != start.steps()
    extended = replace(new, step=step, time=position / start.batch if by_sequences else step)
    held = replace(kept, held_from=min(kept.held_from, max(kept.total, kept.time_of(step))))
    way = start.way
    if way in (None, before.way) and not longer:
        way = "unchanged"
    elif way is None:
        ends_at_nothing = held.time_of(last_step) > held.held_from
        ends_at_nothing = ends_at_nothing and held.rate(last_step) < ALMOST_NOTHING * held.peak
        same = math.isclose(extended.rate(step + 1), kept.rate(step + 1), rel_tol=1e-9, abs_tol=0)
        way = "extend" if same else "rewarm" if ends_at_nothing else "keep"
    schedule = {"unchanged": kept, "keep": held, "extend": extended}.get(way)
    if way == "rewarm":
        schedule = rewarmed(new, step, last_step - step, run.schedule.rate(step))
        few = [u for u in range(step + 1, last_step + 1) if schedule.rate(u) < ALMOST_NOTHING * new.peak]
        if start.way is None and 2 * len(few) > last_step - step:
            raise RefusedError("most steps would train at almost nothing")
    return Run(start, schedule, last_step, step, position, run.tokens, [*run.choices, way])


def rewarmed(new: Schedule, step: int, left: int, rate: float) -> Schedule:
    """The next update is the schedule's first, the last one its last."""
    if new.warmup == 0 and rate < ALMOST_NOTHING * new.peak:
        raise RefusedError("no decay can begin at almost nothing")
    pace = (new.total - 1) / (left - 1) if left > 1 else 1.0
    peak = new.peak if new.warmup else rate
    return replace(new, peak=peak, step=step, time=1 - pace, pace=pace, warmup_from=rate)
