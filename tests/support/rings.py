"""Replay rings with a known content, for the tests of the ring and the tasks."""

import numpy as np

from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED
from gunreal.experience.segment import Layout, Segment
from gunreal.experience.sequences import DRAWS, Sequences
from gunreal.experience.spec import RecordedField, Spec
from gunreal.tasks import calls

END = {"T": TERMINATED, "t": TRUNCATED, "-": 0}


def episodes(text):
    """Rows' flags of episodes in words: "--T" is three steps, the last of which terminates; "t" truncates. The last
    episode may go on."""
    flags = []
    for word in text.split():
        rows = [END[c] for c in word]
        rows[0] |= FIRST
        flags += rows + ([RESET] if word[-1] in "Tt" else [])
    return flags


def write(segment, agent, step, frame, flags, **values):
    """Writes one row as an agent does; the row is complete once `segment.end` has passed it."""
    arrays, row, ring = segment.arrays, step % segment.layout.ring, segment.layout.ring
    arrays["frame"][agent, row] = frame
    arrays["flags"][agent, row] = flags
    arrays["age"][agent, row] = 0 if flags & FIRST else min(int(arrays["age"][agent, (step - 1) % ring]) + 1, 255)
    for name, value in values.items():
        arrays[name][agent, row] = value


def make_segment(spec, flags, rewards=None, frames=None, actions=None, replay_size=100):
    """A segment of one agent. `flags` are of its complete steps; `frames` may have one more, the newest observation."""
    segment = Segment(Layout(spec, agents=1, groups=1, replay_size=replay_size, extra={}, slots=1, mailboxes={}))
    count = len(flags)
    rewards = np.zeros(count) if rewards is None else rewards
    actions = np.zeros(count, int) if actions is None else actions
    frames = np.zeros((count + 1, *spec.frame)) if frames is None else frames
    for step in range(count):
        write(segment, 0, step, frames[step], flags[step], reward=rewards[step], action=actions[step])
    last = flags[-1] if count else RESET
    newest = FIRST if last & RESET else RESET if last & (TERMINATED | TRUNCATED) else 0
    write(segment, 0, count, frames[count] if len(frames) > count else 0, newest)
    segment.end[0] = count
    return segment


def rows(segment, name, first, length):
    """Steps of the first agent's ring."""
    return segment.replay(np.zeros(1, int)).get(name, first, length)[0]


def draws(task, segment, count=1, seed=0):
    """The sequences of `count` draws from the first agent's ring, as pairs of first step and length. None for none."""
    found = segment.replay(np.zeros(count, int))
    random = np.random.default_rng(seed).random((count, DRAWS), np.float32)
    first, length = calls.sample(task, found, random)
    return [pair if pair[1] else None for pair in zip(first.tolist(), length.tolist(), strict=True)]


def targets(task, segment, sequence, bootstrap=None):
    """The targets of one sequence of the first agent's ring, a pair of first step and length."""
    sequences = Sequences(*(np.array([number]) for number in sequence))
    bootstraps = None if bootstrap is None else np.asarray(bootstrap, np.float32)[None]
    found = calls.targets(task, segment.replay(np.zeros(1, int)), sequences, bootstraps)
    return {name: array[0] for name, array in found.items()}


VECTOR = Spec((1,), 1, "float32", num_actions=3, t_max=4, discount=0.5, reward_clip=1.0)

SPEC = Spec((2, 3, 5), 4, "uint8", num_actions=4, t_max=2)
LAYOUT = Layout(
    SPEC,
    agents=3,
    groups=2,
    replay_size=12,
    extra={"depth": RecordedField("depth", (2,), "float32")},
    slots=1,
    mailboxes={},
)


def live(segment, agent, steps, seed=0, each=lambda step: None):
    """Random short episodes. Returns all that was ever written, of which the ring keeps the newest part."""
    rng = np.random.default_rng(seed)
    spec, history, flags = segment.layout.spec, [], FIRST
    for step in range(steps + 1):
        if not flags & RESET and rng.random() < 0.3:
            flags |= int(rng.choice([TERMINATED, TRUNCATED]))
        frame = rng.integers(256, size=spec.frame).astype(spec.dtype)
        row = {
            "action": rng.integers(spec.num_actions),
            "reward": np.float32(rng.normal()),
            "depth": rng.normal(size=2).astype(np.float32),
        }
        write(segment, agent, step, frame, flags, **row)
        segment.end[agent] = step
        history.append({"frame": frame, "flags": flags, **row})
        each(step)
        flags = FIRST if flags & RESET else RESET if flags & (TERMINATED | TRUNCATED) else 0
    return history
