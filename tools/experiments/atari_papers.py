"""The papers' experiments on Atari games: GUNREAL's figures 10 to 12, GA3C's figure 6 and table 3.

Every experiment has the papers' constants, and beside them this library's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.table import ALL, GA3C, RGB, STACK, TASKS, GamesExperiment, LearningExperiment, Setting

_STEPS = 1_500_000  # what two cores can pay for: the papers train for a day or more
_GUNREAL = {**GA3C, "t_max": 20, "replay_fill": "full"}  # GUNREAL, table 2
_OURS = "These runs are short: the papers train for a day on a GPU or longer."


def _figure(name: str, figure: int, game: str, env: str, paper: Mapping[str, float], shows: str) -> LearningExperiment:
    return LearningExperiment(
        name=name,
        title=f"GUNREAL figure {figure}: {game}",
        shows=f"The paper (section 4.2): {shows} Its UNREAL is another program, without LSTM and on single RGB frames; "
        f"here the tasks on that input stand for it. {_OURS}",
        envs=(env,),
        settings={
            "ga3c": Setting("GA3C's constants", {"tasks": (), **STACK, **_GUNREAL}),
            "unreal": Setting("UNREAL's input: a single RGB frame", {"tasks": TASKS, **RGB, **_GUNREAL}),
            "gunreal": Setting("GUNREAL's constants", {"tasks": TASKS, **STACK, **_GUNREAL}, paper),
            "base": Setting("base, our defaults", {"tasks": ()}),
            ALL: Setting("pc+vr+rp, our defaults", {"tasks": TASKS}),
        },
        steps=_STEPS,
        reference="ga3c",
    )


_RATES = {
    "rate3e-4": Setting("GA3C's constants, rate 3e-4", {"tasks": (), **GA3C}),
    "rate1e-4": Setting(
        "GA3C's constants, rate 1e-4", {"tasks": (), **GA3C, "learning_rate": 1e-4, "learning_rate_end": 1e-4}
    ),
    "ours": Setting("base, our defaults", {"tasks": ()}),
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
        "GUNREAL reaches a score of 150 in 6.7 % fewer steps than GA3C, which is the ratio in the table, and finishes "
        "3.8 times sooner than UNREAL.",
    ),
    _figure(
        "fig11",
        11,
        "Pong",
        "ALE/Pong-v5",
        {},
        "GUNREAL needs about as much time as GA3C, and finishes 9.5 times sooner than UNREAL. It states no scores.",
    ),
    _figure(
        "fig12",
        12,
        "Space Invaders",
        "ALE/SpaceInvaders-v5",
        {"ratio": 0.74},
        "GUNREAL reaches a score of 550 in 26 % fewer steps than GA3C, which is the ratio in the table, and finishes "
        "4.0 times sooner than UNREAL.",
    ),
    GamesExperiment(
        name="ga3c-fig6",
        title="GA3C figure 6: learning curves on Atari games",
        shows="The paper (section 5.2): three runs for each of two learning rates on five games over wall-clock time, "
        f"of which its text names Pong, Qbert and Breakout; it states no scores. {_OURS}",
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
        shows="The paper: GA3C's scores after one day, means of 30 games of its best agent. Here they are the means of "
        f"the last 100 games of training. {_OURS}",
        envs=("ALE/Pong-v5",),
        settings={"ga3c": _RATES["rate3e-4"], "ours": _RATES["ours"]},
        steps=_STEPS,
        reference="ga3c",
        panels=(("step", "score_mean"),),
        games={game: {"ga3c": score} for game, score in _TABLE_3.items()},
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
