import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gunreal_representations.atc import Atc
from gunreal_representations.byol_explore import ByolExplore
from gunreal_representations.cloning import Cloning
from gunreal_representations.curl import Curl
from gunreal_representations.deepmdp import DeepMdp
from gunreal_representations.drac import Drac
from gunreal_representations.gated import GatedValueReplay
from gunreal_representations.icm import Icm
from gunreal_representations.kickstarting import Kickstarting
from gunreal_representations.prioritized import PrioritizedValueReplay
from gunreal_representations.probe import ActionProbe
from gunreal_representations.rnd import Rnd
from gunreal_representations.spr import Spr
from gunreal_representations.successor import SuccessorFeatures
from gunreal_representations.uncertainty import UncertainRewardPrediction
from gunreal_representations.views import shifted

from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.records import metrics
from gunreal.tasks import Sequences
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.testing import check_task

HERE = Path(__file__).parent
IMAGES = Spec((1, 36, 36), 2, "uint8", num_actions=3, t_max=6)
RNG = np.random.default_rng(0)
MASK = np.array([[1, 1, 0, 1], [1, 1, 1, 1]], np.float32)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def number(tensor):
    from keras import ops

    return float(ops.convert_to_numpy(tensor))


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def cross_entropy(logits, action):
    return -log_softmax(logits)[action]


def divergence(one, other):
    """From the policy of some logits to that of others."""
    return (np.exp(log_softmax(one)) * (log_softmax(one) - log_softmax(other))).sum()


def pairs():
    """The steps that the mask has together with the next one."""
    return [(b, t) for b in range(2) for t in range(3) if MASK[b, t] and MASK[b, t + 1]]


def exported(path, network="small", **changed):
    """A policy as `gunreal export` writes it."""
    from gunreal.learning.network import Network
    from gunreal.learning.portable import portable
    from gunreal.learning.registry import named

    portable(Network(IMAGES._replace(**changed), (), named(network, hidden=16))).save(path)
    return str(path)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("teacher") / "policy.keras")


VALUES = [GatedValueReplay, PrioritizedValueReplay]
VIEWS, MODELS = [Curl, Spr, Drac, Atc, ByolExplore], [DeepMdp, Icm, Rnd, SuccessorFeatures, UncertainRewardPrediction]


@pytest.mark.parametrize("task", [*VIEWS, *MODELS, *VALUES, ActionProbe, Cloning(data="expert"), Kickstarting])
def test_keeps_the_contract(task, teacher):
    check_task(Kickstarting(teacher=teacher) if task is Kickstarting else task, IMAGES)


def test_the_table_names_all_tasks_and_their_lines():
    points = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["entry-points"]["gunreal.tasks"]
    files = {name: HERE / f"{point.partition(':')[0].replace('.', '/')}.py" for name, point in points.items()}
    lines = {name: len(file.read_text().splitlines()) for name, file in files.items()}
    rows = [line.split("|") for line in (HERE / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert {name.strip(" `"): int(count) for _, name, _, _, count, _ in rows} == lines


def test_views_are_shifted_by_whole_pixels():
    from keras import ops

    image = np.arange(2 * 3 * 1 * 6 * 5, dtype=np.uint8).reshape(2, 3, 1, 6, 5)
    draws = RNG.random((2, 3, 2)).astype(np.float32)
    views = ops.convert_to_numpy(shifted(SimpleNamespace(observations=image, draws=lambda *_: draws), 2))
    padded = np.pad(image, ((0, 0),) * 3 + ((2, 2),) * 2, mode="edge")
    for b, t in np.ndindex(2, 3):
        row, column = np.floor(draws[b, t] * 5).astype(int)
        np.testing.assert_array_equal(views[b, t], padded[b, t, :, row : row + 6, column : column + 5])


@pytest.mark.parametrize(("task", "steps", "later"), [(Curl(units=3), 4, 0), (Atc(ahead=1, units=3), 3, 1)])
def test_the_contrast_is_that_of_the_paper(task, steps, later):
    """Equation 4 of CURL and InfoNCE in ATC, with the codes of all other (later) views of the batch as negatives."""
    queries, keys = normal(2, steps, 3), normal(2, steps, 3)
    loss, found = task.loss({"queries": queries, "keys": keys}, {"mask": MASK})
    kept = pairs() if later else [*map(tuple, np.argwhere(MASK))]
    scores = [np.array([queries[at] @ keys[other] for other in kept]) for at in kept]
    slow = [cross_entropy(score, place) for place, score in enumerate(scores)]
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-4)
    right = [score.argmax() == place for place, score in enumerate(scores)]
    assert number(found["accuracy"]) == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("task", "distance"),
    [(Spr, lambda one, two: -(one @ two)), (ByolExplore, lambda one, two: ((one - two) ** 2).sum())],
)
def test_predictions_have_the_distance_of_the_paper(task, distance):
    """Equation 5 of SPR, and of BYOL-Explore: of normalized vectors, over the predictions that stay in an episode."""
    targets, predictions = normal(2, 4, 3), [normal(2, 3, 3), normal(2, 2, 3)]
    loss = task(steps=2).loss({"targets": targets, "predictions": predictions}, {"mask": MASK})
    slow = []
    for b, t, k in np.ndindex(2, 4, 3):
        if k and t + k < 4 and MASK[b, t : t + k + 1].all():
            one, two = predictions[k - 1][b, t], targets[b, t + k]
            slow.append(distance(one / np.linalg.norm(one), two / np.linalg.norm(two)))
    assert len(slow) == 6
    assert number(loss[0] if isinstance(loss, tuple) else loss) == pytest.approx(np.mean(slow), rel=1e-4)


def test_drac_is_the_regularization_of_the_paper():
    """Equations 4 and 5."""
    own, view = ({"logits": normal(2, 4, 3), "value": normal(2, 4), "scale": 2.0} for _ in range(2))
    slow = [
        divergence(own["logits"][at], view["logits"][at]) + ((own["value"][at] - view["value"][at]) / 2) ** 2
        for at in map(tuple, np.argwhere(MASK))
    ]
    assert number(Drac().loss({"own": own, "view": view}, {"mask": MASK})) == pytest.approx(np.mean(slow), rel=1e-4)


def test_rnd_is_the_error_of_the_paper_and_its_moments_are_those_of_all_frames():
    """Sections 2.2 and 2.4. The moments of two batches are those of their union."""
    spec, task = Spec((1, 2, 3), 2, "uint8", 3), Rnd(units=5, hidden=7, reward=5.0, bonus_discount=0.9)
    state, head = task.state(spec), task.head(spec)
    head(np.zeros((2, 4, 8), np.float32))
    (w, b, v, c), rows = ([np.asarray(x) for x in head.trainable_weights], [])
    for observations in RNG.integers(0, 256, (2, 2, 4, 2, 2, 3), np.uint8):  # of two stacked frames
        errors = head(np.zeros((2, 4, 8), np.float32), net=SimpleNamespace(observations=observations, state=state))
        rows.append(observations[:, :, 1].reshape(2, 4, 6)[MASK > 0].astype(np.float64))
        mean, variance, _ = np.asarray(state["pixels"])
        normal = ((rows[-1] - mean) / np.sqrt(np.maximum(variance, 1))).clip(-5, 5)
        found = np.maximum(normal @ w + b, 0) @ v + c
        slow = ((found - np.maximum(normal @ np.asarray(state["random"]), 0)) ** 2).mean(axis=1)
        np.testing.assert_allclose(np.asarray(errors)[MASK > 0], slow, rtol=1e-4)
        bonus = task.bonus(errors[:, :1], None, {**state, "error": np.float32([0, 4, 1])})
        np.testing.assert_allclose(bonus, 0.25 * np.asarray(errors)[:, 0], rtol=1e-4)
        loss, _, new = task.loss(errors, {"frame": observations[:, :, 1:], "mask": MASK, "state": state})
        assert number(loss) == pytest.approx(slow.mean(), rel=1e-4)
        state = {**state, **new}
    mean, variance, count = np.asarray(state["pixels"])
    rows = np.concatenate(rows)
    assert (count == len(rows)).all()
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-4)


def test_kickstarting_is_the_cross_entropy_of_the_paper_and_ends():
    """Of the policies of teacher and student, with a weight that falls linearly."""
    policies, kept = {"teacher": normal(2, 4, 3), "student": normal(2, 4, 3)}, [*map(tuple, np.argwhere(MASK))]
    entropies = [-(np.exp(log_softmax(policies["teacher"][at])) @ log_softmax(policies["student"][at])) for at in kept]
    divergences = [divergence(policies["teacher"][at], policies["student"][at]) for at in kept]
    for progress, influence in ((0.0, 1.0), (0.6, 0.25), (0.9, 0.0)):
        loss, found = Kickstarting(until=0.8).loss(policies, {"mask": MASK, "progress": np.float32(progress)})
        assert number(loss) == pytest.approx(influence * np.mean(entropies), rel=1e-4)
        assert number(found["divergence"]) == pytest.approx(np.mean(divergences), rel=1e-4)


def test_kickstarting_asks_the_teacher_about_each_observation_and_does_not_train_it(teacher):
    import keras

    head = Kickstarting(teacher=teacher).head(IMAGES)
    observations = RNG.integers(0, 256, (2, 6, 2, 36, 36), np.uint8)
    net = SimpleNamespace(observations=observations, policy_value=lambda hidden: {"logits": hidden})
    found = keras.ops.convert_to_numpy(head(normal(2, 6, 3), net=net)["teacher"])
    wanted = keras.models.load_model(teacher).predict(observations.reshape(12, 2, 36, 36), verbose=0)["logits"]
    np.testing.assert_allclose(found, wanted.reshape(2, 6, 3), atol=1e-5)
    assert not head.variables


def test_kickstarting_refuses_a_teacher_that_it_cannot_ask(teacher, tmp_path):
    (tmp_path / "policy.onnx").write_bytes(b"onnx")
    recurrent = exported(tmp_path / "lstm.keras", "lstm", state=32)
    refused = [
        ("", {}, "needs a teacher"),
        (recurrent, {}, "recurrent"),
        (tmp_path / "policy.keras", {}, "No such file"),
        (tmp_path / "policy.onnx", {}, "write it with gunreal export"),
        (teacher, {"num_actions": 4}, "4 actions"),
        (teacher, {"frame": (1, 84, 84)}, "84"),
    ]
    for path, other, message in refused:
        with pytest.raises(ValueError, match=message) as error:
            Kickstarting(teacher=str(path)).check(IMAGES._replace(**other))
        assert "\n" not in str(error.value)


def test_deepmdp_has_the_losses_of_the_paper():
    """The reward's and the transition's, for a deterministic model: absolute errors and distances."""
    outputs = {"features": normal(2, 4, 3), "next": normal(2, 4, 3), "reward": normal(2, 4)}
    batch = {"reward": normal(2, 4), "mask": MASK}
    loss, _ = DeepMdp().loss(outputs, batch)
    rewards = [abs(batch["reward"][i] - outputs["reward"][i]) for i in map(tuple, np.argwhere(MASK))]
    steps = [np.linalg.norm(outputs["features"][b, t + 1] - outputs["next"][b, t]) for b, t in pairs()]
    assert number(loss) == pytest.approx(np.mean(rewards) + np.mean(steps), rel=1e-4)


def test_icm_has_the_losses_and_the_reward_of_the_paper():
    """Equations 3, 5, 6 and 7 without the policy's loss."""
    outputs = {"action": normal(2, 3, 5), "found": normal(2, 3, 4), "next": normal(2, 3, 4)}
    action = RNG.integers(0, 5, (2, 4)).astype(np.int32)
    loss, _ = Icm(forward=0.3).loss(outputs, {"action": action, "mask": MASK})
    inverse = [cross_entropy(outputs["action"][at], action[at]) for at in pairs()]
    forward = [0.5 * ((outputs["found"][at] - outputs["next"][at]) ** 2).sum() for at in pairs()]
    assert number(loss) == pytest.approx(0.7 * np.mean(inverse) + 0.3 * np.mean(forward), rel=1e-4)
    step = {"found": outputs["found"][:, :1], "next": outputs["next"][:, :1]}
    slow = [0.2 * 0.5 * ((found - seen) ** 2).sum() for found, seen in zip(step["found"], step["next"], strict=True)]
    np.testing.assert_allclose(Icm(reward=0.2).bonus(step, None, {}), slow, rtol=1e-4)


def test_successor_features_are_discounted_sums_of_the_brightness_of_cells():
    """As n-step returns, times 1 - gamma."""
    spec = IMAGES._replace(frame=(1, 5, 7))
    replay = synthetic_segment(spec, {}, 60, 0).replay(np.zeros(40, int))
    first = np.arange(replay.oldest, replay.oldest + 40)
    sequences = Sequences(first, np.asarray(replay.sequence_length(first, spec.t_max)))
    bootstraps, task = normal(40, 4), SuccessorFeatures(cells=2, discount=0.9)
    sums = task.targets(replay, sequences, bootstraps)["sums"]
    frames, discounts = replay.get("frame", first, spec.t_max + 1) / 255, replay.discounts(first, spec.t_max, 0.9)
    for n, length in enumerate(sequences.length):
        value = bootstraps[n]
        for t in reversed(range(length)):
            image = frames[n, t + 1, 0]
            cells = [image[r : r + 2, c : c + 3].mean() for r in (0, 2) for c in (0, 3)]
            value = 0.1 * np.array(cells) + discounts[n, t] * value
            np.testing.assert_allclose(sums[n, t], value, rtol=1e-4)
    outputs, batch = normal(2, 4, 4), {"sums": normal(2, 4, 4), "mask": MASK}
    slow = np.mean([0.5 * ((outputs[i] - batch["sums"][i]) ** 2).sum() for i in map(tuple, np.argwhere(MASK))])
    assert number(task.loss(outputs, batch)) == pytest.approx(slow, rel=1e-4)


def test_the_uncertainty_weighs_the_loss_as_in_the_paper():
    """Equation 10 for one classification, with s = log sigma^2."""
    outputs, batch = normal(2, 3), {"class": np.array([0, 2], np.int32), "mask": np.ones((2, 3), np.float32)}
    loss, found = UncertainRewardPrediction().loss({"outputs": outputs, "log_variance": np.float32(0.6)}, batch)
    sigma = np.exp(0.6) ** 0.5
    likelihood = np.mean([cross_entropy(outputs[b], batch["class"][b]) for b in range(2)])
    assert number(loss) == pytest.approx(likelihood / sigma**2 + np.log(sigma), rel=1e-4)
    assert number(found["weight"]) == pytest.approx(1 / sigma**2)
    assert number(RewardPrediction().loss(outputs, batch)) == pytest.approx(likelihood, rel=1e-4)


def test_the_gate_is_that_of_the_paper():
    """Algorithm 1, the unweighted version."""
    gate = GatedValueReplay().gate
    assert [number(gate(np.float32(cosine), 1.0, 1.0)) for cosine in (-0.5, 0.0, 0.5)] == [0, 0, 1]


@pytest.mark.parametrize(("task", "back"), [(Cloning(), 0), (ActionProbe(), 1)])
def test_the_loss_is_the_cross_entropy_of_the_action(task, back):
    """Of the action that follows, or of the one before."""
    logits, action = normal(2, 4, 3), RNG.integers(0, 3, (2, 4)).astype(np.int32)
    loss, found = task.loss(logits if back else {"logits": logits}, {"action": action, "mask": MASK})
    kept = [(b, t) for b, t in np.ndindex(2, 4) if t >= back and MASK[b, t - back : t + 1].all()]
    wanted = [action[b, t - back] for b, t in kept]
    slow = [cross_entropy(logits[at], chosen) for at, chosen in zip(kept, wanted, strict=True)]
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-5)
    right = [logits[at].argmax() == chosen for at, chosen in zip(kept, wanted, strict=True)]
    assert number(found["accuracy"]) == pytest.approx(np.mean(right))


def test_prioritized_replay_has_the_loss_and_the_priorities_of_the_paper():
    """Algorithm 1, lines 10 to 13. A sequence of a batch without any has the weight 0 and the mask 0."""
    weight, value, returns = np.array([0.5, 4], np.float32), normal(2, 4), normal(2, 4)
    batch = {"returns": returns, "weight": weight, "mask": MASK, "progress": np.float32(0.5)}
    loss, found = PrioritizedValueReplay(correction=0.4).loss({"value": value, "scale": 2.0}, batch)
    errors, weights = (returns - value) / 2, (weight / 4) ** 0.7
    slow = [weights[b] * errors[b, t] ** 2 / 2 for b, t in np.argwhere(MASK)]
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-4)
    np.testing.assert_allclose(found["priority"], np.abs(errors), rtol=1e-5)


ALL = [*VIEWS, *MODELS, *VALUES, ActionProbe, Kickstarting]


@pytest.mark.parametrize(
    ("runner", "tasks"),
    [
        ("--min_batch 160 --network lstm", ALL),
        ("--runner device", [Curl, Rnd, Icm, *VALUES, SuccessorFeatures, Kickstarting]),
    ],
)
def test_trains(tmp_path, runner, tasks):
    if "device" in runner:
        pytest.importorskip("jax")
    teacher = exported(tmp_path / "policy.keras", frame=(1, 84, 84))
    named = ",".join(f"{task.__module__}:{task.__name__}" for task in tasks) + ",again=gunreal_representations.rnd:Rnd"
    flags = f"{runner} --env gunreal/Catch-v0 --frame_stack 2 --steps 480 --agents 8 --hidden 16 --t_max 8"
    flags += f" --logdir {tmp_path} --name run --tasks {named} --task again.units=8 --task kickstart.teacher={teacher}"
    flags += " --metrics_seconds 1000" + " --task spr_averaged.replays=2,spr_averaged.updates=2" * (Spr in tasks)
    command = [sys.executable, "-m", "gunreal", "train", *flags.split()]
    subprocess.run(command, check=True, cwd=HERE)
    (*_, line) = metrics.read(tmp_path / "run" / metrics.FILE)
    assert line["updates"] > 2
    losses = [value for name, value in line.items() if name.startswith("loss_")]
    assert len(losses) >= len(tasks) + 1 and np.isfinite(losses).all()
