"""The speed experiments of the papers, which `tools/reproduce.py` measures. To add an experiment, add an entry.

Each setting runs for some seconds, several times, and the medians are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.table import GA3C, PONG, TASKS, Experiment, Setting


class Quantity(NamedTuple):
    """A quantity computed from a row of `measure.row`.

    Attributes:
      label: title of the column and of the axis.
      of: returns the value of a row, or raises KeyError or TypeError if the row does not have it.
      form: format of the number.
      relative: whether it is a rate, which is also shown relative to another setting.
    """

    label: str
    of: Callable[[Mapping[str, Any]], float]
    form: str = ",.1f"
    relative: bool = False


QUANTITIES = {
    "pps": Quantity("agent steps/s acted (PPS)", lambda row: row["pps"], ",.0f", True),
    "tps": Quantity("agent steps/s trained", lambda row: row["tps"], ",.0f", True),
    "updates": Quantity("updates/s (TPS)", lambda row: row["tps"] / row["train_batch"], ",.1f", True),
    "update_ms": Quantity("time per update, ms", lambda row: row["update_ms"]),
    "queue": Quantity("rollouts waiting for a trainer", lambda row: row["queues"]["train"]["mean"]),
    "batch": Quantity("prediction batch size", lambda row: row["predictions"]["base"]["mean"]),
    "wait": Quantity("share of time that agents wait", lambda row: row["wait"]["share"], ".1%"),
    "wait_ms": Quantity("waiting time per action, ms", lambda row: row["wait"]["mean_ms"]),
    "bytes": Quantity("kB to the learner per agent step", lambda row: row["bytes"]["to_device"] / 1e3),
    "lag": Quantity("policy lag, updates", lambda row: row["policy_lag"]),
    "memory": Quantity("memory, MB", lambda row: row["memory"]["bytes"] / 1e6, ",.0f"),
}


@dataclass(frozen=True, kw_only=True)
class SpeedExperiment(Experiment):
    """A speed experiment: its settings, the columns of its table and the panels of its figure.

    Attributes:
      columns: columns of the table, as keys of `QUANTITIES`. The paper's numbers appear beside them. `Setting.paper`
        contains them under the same keys. Any other key of `Setting.paper` is the title of a column of its own.
      panels: panels of the figure, as keys of `QUANTITIES`.
      against: for a setting, the reference setting by which its rates are divided. Other settings have no reference.
      axis: field of `gunreal.Config` on the x axis. Settings that differ only in this field form one line. If it is
        empty, the figure shows bars.
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
        title="GA3C figures 3 and 4: effect of N_A, N_P and N_T on training rate, queue and batch sizes",
        shows="In the paper (section 5.1, 16 cores and a GPU), every agent is a process. The rate grows up to N_A = "
        "128 agents and is highest with N_P = N_T = 2. The best setting is 14 % faster than the worst one. The "
        "training queue stays far from full, and the fastest setting has one of the largest prediction batches. The "
        "paper states no other numbers.",
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
        title="GA3C table 2: effect of the network's size on predictions per second",
        shows="The paper's systems have 8 to 16 cores and a GPU each. Its A3C uses only the cores. Compare the ratios "
        "to the small network rather than the rates, since the machines differ.",
        envs=PONG,
        settings={
            "small": Setting("small", {"network": "small"}, _SYSTEMS["small"]),
            **{
                f"stride{stride}": Setting(
                    f"large, stride {stride}",
                    {"network": "large", "network_args": {"first_stride": stride}},
                    _SYSTEMS[f"stride{stride}"],
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
        title="GUNREAL figure 9: NCHW and NHWC",
        shows="In the paper (section 4.1, on a GPU), GUNREAL with NCHW makes 5 % more predictions and updates per "
        "second. On a CPU, TensorFlow prefers NHWC.",
        envs=PONG,
        settings={
            "base-nhwc": Setting("no task, NHWC", {"tasks": (), "layout": "nhwc"}),
            "base-nchw": Setting("no task, NCHW", {"tasks": (), "layout": "nchw"}),
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
        title="Multiverse: frames sent as bytes, and several agents per process",
        shows="Multiverse (16 cores and a GPU) uses 20 processes with one agent each, and 15 processes with several "
        "agents. Here, the number of agents stays the same. Multiverse gains 15 % from sending bytes instead of "
        "floats, together with separate threads for reading. Its waiting time is that of a process. Here it is that "
        "of an agent, and the process steps the other half of its agents in the meantime.",
        envs=PONG,
        settings={
            "float32": Setting(
                "1 agent per process, float32 (GA3C)",
                {"agents_per_process": 1, "transfer": "float32"},
                {"pps": 1164, "wait": 0.613},
            ),
            "1": Setting("1 agent per process", {"agents_per_process": 1, "transfer": "uint8"}, {"pps": 1343}),
            **{
                str(each): Setting(
                    f"{each} agents per process",
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
