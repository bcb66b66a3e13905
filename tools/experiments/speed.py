"""The papers' experiments about speed that `tools/reproduce.py` measures: a table, in which a new one is a new entry.

Nothing is learned from them: each setting runs for some seconds, several times, and medians are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.table import GA3C, PONG, TASKS, Experiment, Setting


class Quantity(NamedTuple):
    """Something that is read off a row of `measure.row`.

    Attributes:
      label: of a column and of an axis.
      of: a row's value; a KeyError or TypeError says that it has none.
      form: how it is written.
      relative: whether it is a rate, of which the ratio to another setting's is shown too.
    """

    label: str
    of: Callable[[Mapping[str, Any]], float]
    form: str = ",.1f"
    relative: bool = False


QUANTITIES = {
    "pps": Quantity("agent steps/s acted (PPS)", lambda row: row["pps"], ",.0f", True),
    "tps": Quantity("agent steps/s trained", lambda row: row["tps"], ",.0f", True),
    "updates": Quantity("updates/s (TPS)", lambda row: row["tps"] / row["train_batch"], ",.1f", True),
    "update_ms": Quantity("an update, ms", lambda row: row["update_ms"]),
    "queue": Quantity("rollouts waiting for a trainer", lambda row: row["queues"]["train"]["mean"]),
    "batch": Quantity("observations in a prediction", lambda row: row["predictions"]["base"]["mean"]),
    "wait": Quantity("waiting share of agents' time", lambda row: row["wait"]["share"], ".1%"),
    "wait_ms": Quantity("a wait, ms", lambda row: row["wait"]["mean_ms"]),
    "bytes": Quantity("kB to the learner for a step", lambda row: row["bytes"]["to_device"] / 1e3),
    "lag": Quantity("policy lag, updates", lambda row: row["policy_lag"]),
    "memory": Quantity("memory, MB", lambda row: row["memory"]["bytes"] / 1e6, ",.0f"),
}


@dataclass(frozen=True, kw_only=True)
class SpeedExperiment(Experiment):
    """What is measured and how it is shown.

    Attributes:
      columns: of the table, keys of `QUANTITIES`; the paper's numbers stand beside them. `Setting.paper` has them by
        the same keys; another key is the title of a column that only the paper has.
      panels: of the picture, likewise.
      against: by setting, the one that its rates are divided by; none of the settings that are left out has such.
      axis: a field that is the picture's x axis; settings that differ in it alone are one line. Empty: bars.
    """

    columns: tuple[str, ...]
    panels: tuple[str, ...]
    against: Mapping[str, str]
    axis: str = ""


_AGENTS, _THREADS = (1, 2, 4, 8, 16, 32, 64), ((1, 1), (1, 2), (2, 1), (2, 2))
_SYSTEMS = {  # GA3C, table 2: PPS of GA3C and of A3C on the CPU
    "small": {"system I": 1361, "I, A3C": 352, "system II": 728, "II, A3C": 116, "system III": 1248, "III, A3C": 300},
    "stride4": {"system I": 1271, "I, A3C": 113},
    "stride3": {"system I": 1206, "I, A3C": 97},
    "stride2": {"system I": 874, "I, A3C": 43},
    "stride1": {"system I": 490, "I, A3C": 11, "system II": 336, "II, A3C": 12, "system III": 256, "III, A3C": 38},
}
_MULTIVERSE = {2: {"pps": 1562, "wait": 0.463}, 4: {"pps": 1781, "wait": 0.386}}
_ALL = (
    SpeedExperiment(
        name="ga3c-fig3",
        title="GA3C figures 3 and 4: training rate, training queue and prediction batch over N_A, N_P, N_T",
        shows="The paper (section 5.1), 16 cores and a GPU: the rate grows up to N_A = 128 agents, of which every one "
        "is a process, and is highest with N_P = N_T = 2; 14 % lie between the best and the worst setting that it "
        "shows. The training queue stays far from full, and the fastest setting has one of the largest prediction "
        "batches. It states no other numbers.",
        envs=PONG,
        settings={
            f"{agents}-{predictors}-{trainers}": Setting(
                f"{agents}/{predictors}/{trainers}",
                {"agents": agents, "predictors": predictors, "trainers": trainers},
            )
            for agents in _AGENTS
            for predictors, trainers in _THREADS
        },
        common={**GA3C, "agents_per_process": 1},
        columns=("tps", "pps", "queue", "batch", "lag", "memory"),
        panels=("tps", "queue", "batch"),
        against={},
        axis="agents",
    ),
    SpeedExperiment(
        name="ga3c-table2",
        title="GA3C table 2: predictions a second over the network's size",
        shows="The paper's systems have 8 to 16 cores and a GPU each, its A3C only the cores; they differ from this "
        "machine, so the ratios are what can be compared: how much of the small network's rate is left.",
        envs=PONG,
        settings={
            "small": Setting("small", {"network": "small"}, _SYSTEMS["small"]),
            **{
                f"stride{stride}": Setting(
                    f"large, stride {stride}", {"network": "large", "first_stride": stride}, _SYSTEMS[f"stride{stride}"]
                )
                for stride in (4, 3, 2, 1)
            },
        },
        common=GA3C,
        columns=("pps", "updates", "update_ms", "batch", "wait_ms"),
        panels=("pps",),
        against=dict.fromkeys(_SYSTEMS, "small"),
    ),
    SpeedExperiment(
        name="fig9",
        title="GUNREAL figure 9: NCHW against NHWC",
        shows="The paper (section 4.1), GUNREAL on a GPU: NCHW makes 5 % more predictions and updates a second. On a "
        "CPU, NHWC is TensorFlow's own layout and the one that is expected to win.",
        envs=PONG,
        settings={
            "base-nhwc": Setting("base, NHWC", {"tasks": (), "layout": "nhwc"}),
            "base-nchw": Setting("base, NCHW", {"tasks": (), "layout": "nchw"}),
            "nhwc": Setting("pc+vr+rp, NHWC", {"tasks": TASKS, "layout": "nhwc"}, {"pps": 1477, "updates": 36}),
            "nchw": Setting("pc+vr+rp, NCHW", {"tasks": TASKS, "layout": "nchw"}, {"pps": 1550, "updates": 38}),
        },
        common={**GA3C, "t_max": 20},
        columns=("pps", "updates", "update_ms"),
        panels=("pps", "updates"),
        against={"base-nchw": "base-nhwc", "nchw": "nhwc"},
    ),
    SpeedExperiment(
        name="multiverse",
        title="Multiverse: frames sent as bytes, and several agents a process",
        shows="Multiverse (16 cores, a GPU) has 20 processes of one agent, then 15 of several; here the number of "
        "agents stays the same. Its 15 % from bytes instead of floats include threads of their own for reading. Its "
        "waiting is that of a process; here it is an agent's, whose process acts with the other half of its agents.",
        envs=PONG,
        settings={
            "float32": Setting(
                "1 agent a process, float32 (GA3C)",
                {"agents_per_process": 1, "transfer": "float32"},
                {"pps": 1164, "wait": 0.613},
            ),
            "1": Setting("1 agent a process", {"agents_per_process": 1, "transfer": "uint8"}, {"pps": 1343}),
            **{
                str(each): Setting(
                    f"{each} agents a process",
                    {"agents_per_process": each, "transfer": "uint8"},
                    _MULTIVERSE.get(each, {}),
                )
                for each in (2, 4, 8, 16)
            },
        },
        common={**GA3C, "agents": 32},
        columns=("pps", "wait", "wait_ms", "batch", "bytes", "memory"),
        panels=("pps", "wait"),
        against=dict.fromkeys(("1", "2", "4", "8", "16"), "float32"),
    ),
)
RATES = {experiment.name: experiment for experiment in _ALL}
