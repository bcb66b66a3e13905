"""The papers' experiments on Atari games: figures 10 to 12 of GUNREAL, figure 6 and table 3 of GA3C.

Every experiment compares the papers' constants with the defaults of this library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.table import ALL, GA3C, RGB, STACK, TASKS, GamesExperiment, LearningExperiment, Setting

_STEPS = 1_500_000  # agent steps that two cores can train in reasonable time
_GUNREAL = {**GA3C, "t_max": 20, "replay_fill": "full"}  # GUNREAL, table 2
_OURS = "These runs are short. The papers train on a GPU for a day or longer."


def _figure(
    name: str,
    figure: int,
    game: str,
    env: str,
    paper: Mapping[str, float],
    shows: str,
    common: Mapping[str, Any] | None = None,
) -> LearningExperiment:
    return LearningExperiment(
        name=name,
        title=f"GUNREAL figure {figure}: {game}",
        shows=f"In the paper (section 4.2), {shows} The paper's UNREAL is a separate program, without an LSTM and with "
        f"single RGB frames. Here, the auxiliary tasks on single RGB frames represent it. {_OURS}",
        envs=(env,),
        settings={
            "ga3c": Setting("GA3C (paper's constants)", {"tasks": (), **STACK, **_GUNREAL}),
            "unreal": Setting("UNREAL (paper's constants, single RGB frame)", {"tasks": TASKS, **RGB, **_GUNREAL}),
            "gunreal": Setting("GUNREAL (paper's constants)", {"tasks": TASKS, **STACK, **_GUNREAL}, paper),
            "base": Setting("no task (our defaults)", {"tasks": ()}),
            ALL: Setting("pc+vr+rp (our defaults)", {"tasks": TASKS}),
        },
        common=common or {},
        steps=_STEPS,
        reference="ga3c",
    )


_RATES = {
    "rate3e-4": Setting("GA3C's constants, learning rate 3e-4", {"tasks": (), **GA3C}),
    "rate1e-4": Setting(
        "GA3C's constants, learning rate 1e-4", {"tasks": (), **GA3C, "learning_rate": 1e-4, "learning_rate_end": 1e-4}
    ),
    "ours": Setting("no task (our defaults)", {"tasks": ()}),
}
_TABLE_3 = {  # GA3C after a day
    "Amidar": 218,
    "Boxing": 92,
    "Centipede": 7386,
    "NameThisGame": 5643,
    "MsPacman": 1978,
    "Pong": 18,
    "Qbert": 14966,
    "Seaquest": 1706,
    "UpNDown": 8623,
}
_ALL = (
    _figure(
        "fig10",
        10,
        "Breakout",
        "ALE/Breakout-v5",
        {"ratio": 0.933},
        "GUNREAL reaches a score of 150 in 6.7 % fewer steps than GA3C (the ratio in the table) and finishes 3.8 "
        "times faster than UNREAL.",
    ),
    _figure(
        "fig11",
        11,
        "Pong",
        "ALE/Pong-v5",
        {},
        "GUNREAL takes about as long as GA3C, and finishes 9.5 times faster than UNREAL. The paper states no scores.",
    ),
    _figure(
        "fig12",
        12,
        "Space Invaders",
        "ALE/SpaceInvaders-v5",
        {"ratio": 0.74},
        "GUNREAL reaches a score of 550 in 26 % fewer steps than GA3C (the ratio in the table) and finishes 4.0 "
        "times faster than UNREAL.",
        {"env_args": {"frameskip": 3}},  # as in SpaceInvadersDeterministic-v3 of Gym
    ),
    GamesExperiment(
        name="ga3c-fig6",
        title="GA3C figure 6: learning curves on Atari games",
        shows="The paper (section 5.2) shows three runs for each of two learning rates on five games, over wall-clock "
        f"time. Its text names Pong, Qbert and Breakout, and states no scores. {_OURS}",
        envs=("ALE/Pong-v5",),
        settings=_RATES,
        steps=_STEPS,
        reference="rate3e-4",
        panels=(("seconds", "score_mean"),),
        games={"Pong": {}, "Qbert": {}, "Breakout": {}},
    ),
    GamesExperiment(
        name="ga3c-table3",
        title="GA3C table 3: scores on Atari games",
        shows="The paper's scores are means over 30 games of the best agent after one day. The scores of these runs "
        f"are means over the last 100 games of training. {_OURS}",
        envs=("ALE/Pong-v5",),
        settings={"ga3c": _RATES["rate3e-4"], "ours": _RATES["ours"]},
        steps=_STEPS,
        reference="ga3c",
        panels=(("step", "score_mean"),),
        games={game: {"ga3c": score} for game, score in _TABLE_3.items()},
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
