"""The settings that belong to one kind of runner."""

from __future__ import annotations

import dataclasses

from gunreal.config.fields import AUTO, Settings, field


@dataclasses.dataclass(frozen=True)
class Processes(Settings):
    """Parallel, serial and cluster runs, whose agents are grouped by process."""

    of = ("processes",)

    agents_per_process: int = field(
        16,
        "Maximum number of agents per process. The largest divisor of agents up to this number is used",
        low=1,
        high=1024,
    )
    min_batch: int = field(
        AUTO, "Minimum size of a training batch, in agent steps. auto means 960 with PPO and 80 with A3C", low=1
    )
    max_batch: int = field(256, "Maximum number of observations in one prediction", low=1)
    transfer: str = field(
        "uint8",
        "Data type of images sent to the device: uint8, or float32 (as in GA3C, with four times as many bytes)",
        choices=("uint8", "float32"),
        of=("images",),
    )
    env_timeout: float = field(
        120.0,
        "Maximum duration of an environment step, in seconds. After that, the process is restarted",
        above=0,
        of=("waits",),
    )


@dataclasses.dataclass(frozen=True)
class Threads(Settings):
    """Parallel and cluster runs, in which acting and training overlap."""

    of = ("threads",)

    predictors: int = field(1, "Number of threads per prediction queue", low=1, high=64)
    trainers: int = field(
        1,
        "Number of training threads. On a CPU, they compute gradients in parallel. On a GPU, a second one gathers the "
        "next batch",
        low=1,
        high=64,
    )
    run_ahead: int = field(
        1,
        "Maximum number of steps that an agent takes of its next rollout while its share of a batch waits for the "
        "trainers. Small values reduce the policy lag, and large values hide latency",
        low=0,
    )
    scheduler: str = field(
        "off",
        "Scheduler for agents, predictors and trainers: annealing (random walk), queue (by queue lengths), or off",
        choices=("annealing", "queue", "off"),
    )
    scheduler_seconds: float = field(20.0, "Seconds between changes by the scheduler", above=0, of=("scheduler",))


@dataclasses.dataclass(frozen=True)
class Device(Settings):
    """Device runs, in which everything is in compiled JAX programs."""

    of = ("device",)

    devices: str = field("1", "Number of devices that a device run uses, or all")
    device_batches: int = field(
        AUTO,
        "Number of groups of agents that update in turn in a device run, a divisor of t_max and of agents. auto means "
        "one group with PPO, and otherwise as many groups as can have batches of at least 80 agent steps",
        low=1,
    )
    device_spread: int = field(
        100,
        "Maximum number of random actions before training in a device run. They spread the agents over their episodes",
        low=0,
    )


@dataclasses.dataclass(frozen=True)
class Cluster(Settings):
    """Cluster runs, in which several nodes train one network."""

    of = ("cluster",)

    nodes: int = field(AUTO, "Number of nodes. auto means one on each machine", low=1, high=1024)
    address: str = field(
        "", "Address of a running Ray cluster, as in auto or HOST:6379. If empty, all nodes run on this machine"
    )
    reducers: int = field(AUTO, "Number of parameter servers. auto means as many as suit the network", low=1, high=64)
    quorum: float = field(
        0.9,
        "Share of the nodes whose gradients a round waits for. Below 1, a deadline also ends it",
        above=0,
        high=1,
        of=("rounds",),
    )
    rate_scaling: str = field(
        "off", "Growth of the learning rate with the number of nodes", choices=("off", "sqrt", "linear")
    )
    warmup: int = field(0, "Agent steps until rate_scaling has its full effect", low=0, of=("scaling",))
    sync: str = field(
        "on", "Synchronous updates: on, or off (each gradient is applied on arrival)", choices=("on", "off")
    )
    gradient_dtype: str = field(
        "float32", "Data type of sent gradients: float32, or bfloat16 (half the bytes)", choices=("float32", "bfloat16")
    )
    node_timeout: float = field(10.0, "Seconds without a sign of life before a node is replaced", above=0)
