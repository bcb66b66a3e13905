from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from doom_walker import FORWARD, LEFT, RIGHT, by_chance, play, to_the_goal

import gunreal.envs  # noqa: F401  (registers the ids)
from gunreal.config.schema import Config
from gunreal.envs import vizdoom_art as art
from gunreal.envs.make import describe, make
from gunreal.envs.vizdoom_maze import ACTIONS, NavMaze, SeekAvoid

pytest.importorskip("vizdoom")
IDS = ["NavMazeStatic", "NavMazeRandomGoal", "NavMazeRandom", "SeekAvoid"]


@pytest.fixture(scope="module")
def opened():
    """Environments by id, gray: opening one takes a quarter of a second."""
    envs = {name: gymnasium.make(f"gunreal/{name}-v0", pixels="gray") for name in IDS}
    yield envs
    for env in envs.values():
        env.close()


@pytest.fixture
def env(request):
    made = request.param()
    yield made
    made.close()


def opens(make):
    return pytest.mark.parametrize("env", [make], indirect=True)


def film(env, seed, actions):
    """All frames and rewards of an episode's beginning."""
    frames, rewards = [env.reset(seed=seed)[0]], []
    for action in actions:
        frame, reward, *_ = env.step(int(action))
        frames.append(frame)
        rewards.append(reward)
    return np.array(frames), rewards


def test_gray_is_the_brightness_of_the_colors(opened):
    env = gymnasium.make("gunreal/NavMazeStatic-v0", render_mode="rgb_array")
    for seed in range(3):
        rgb, gray = env.reset(seed=seed)[0], opened["NavMazeStatic"].reset(seed=seed)[0]
        assert np.abs(rgb @ art.GRAY - gray[:, :, 0]).max() <= 2
        assert (env.render() == rgb).all()
    env.close()


@opens(lambda: SeekAvoid(rows=15, columns=15, num_apples=1, num_lemons=0))
def test_the_picture_spans_90_degrees(env):
    """An apple is seen where perspective has it: `tan(bearing)` of half a picture from the middle."""
    seen = 0
    for seed in range(60):
        image = env.reset(seed=seed)[0].astype(int)
        row, column, angle = env.pose
        apple = env.items[0].cell
        down, right = apple[0] + 0.5 - row, apple[1] + 0.5 - column
        bearing = (angle - np.degrees(np.arctan2(-down, right)) + 180) % 360 - 180
        if abs(bearing) > 42 or not 2 < np.hypot(down, right) < 5:
            continue
        green = np.argwhere((image[:, :, 1] > 180) & (image[:, :, 0] < 140))
        seen += 1
        assert green[:, 1].mean() == pytest.approx(41.5 + 42 * np.tan(np.radians(bearing)), abs=1.5)
    assert seen >= 3


def test_turns_are_those_of_deepmind_lab(opened):
    env = opened["SeekAvoid"].unwrapped
    env.reset(seed=1)
    angles = [env.pose[2]]
    for action in [LEFT] * 5 + [RIGHT] * 5:
        env.step(action)
        angles.append(env.pose[2])
    turns = (np.diff(angles) + 180) % 360 - 180
    assert turns == pytest.approx([8.4375] * 5 + [-8.4375] * 5, abs=0.001)  # Lab: 8.45


@opens(lambda: SeekAvoid(rows=25, columns=25, num_apples=0, num_lemons=0))
def test_walking_goes_where_it_says_and_takes_five_steps_a_cell(env):
    env.reset(seed=5)
    ways = {"forward": 0, "backward": 180, "strafe left": 90, "strafe right": -90}
    for name, offset in ways.items():
        row, column, angle = env.pose
        for _ in range(10):
            env.step(ACTIONS.index(name))
        down, right = env.pose[0] - row, env.pose[1] - column
        heading = np.degrees(np.arctan2(-down, right)) - angle
        assert (heading - offset + 180) % 360 - 180 == pytest.approx(0, abs=2)
        for _ in range(10):
            env.step(LEFT)  # comes to rest
    env.reset(seed=5)
    for _ in range(12):
        env.step(FORWARD)
    before = np.array(env.pose[:2])
    env.step(FORWARD)
    assert 1 / np.linalg.norm(np.array(env.pose[:2]) - before) == pytest.approx(4.9, abs=0.2)


@pytest.mark.parametrize("name", IDS)
def test_an_episode_follows_from_its_seed_and_its_actions(opened, name):
    """Bit for bit, in a new environment and in one that has played other episodes, broken off and whole."""
    fresh, used = gymnasium.make(f"gunreal/{name}-v0", pixels="gray"), opened[name]
    rng = np.random.default_rng(1)
    for seed in (0, 2, 1):
        actions = rng.choice(6, 300, p=[0.4, 0.1, 0.1, 0.1, 0.15, 0.15])
        film(used, 5 + seed, rng.integers(6, size=25))
        frames, rewards = film(fresh, seed, actions)
        frames_again, rewards_again = film(used, seed, actions)
        assert (frames == frames_again).all() and rewards == rewards_again
    fresh.close()


def test_without_seeds_episodes_differ_and_follow_from_the_first_seed(opened):
    env = opened["NavMazeStatic"]
    runs = []
    for _ in range(2):
        env.reset(seed=3)
        runs.append([env.reset()[0] for _ in range(3)])
    assert (np.array(runs[0]) == np.array(runs[1])).all()
    assert (runs[0][0] != runs[0][1]).any() and (runs[0][1] != runs[0][2]).any()


def test_random_parts_of_each_maze(opened):
    def layouts(name):
        env = opened[name].unwrapped
        found = []
        for seed in range(4):
            env.reset(seed=seed)
            assert [item.kind for item in env.items] == ["goal"] + ["apple"] * 5
            assert len({item.cell for item in env.items}) == 6
            found.append((env.free.tobytes(), tuple(env.items)))
        mazes, items = zip(*found, strict=True)
        return len(set(mazes)), len(set(items))

    assert layouts("NavMazeStatic") == (1, 1)
    assert layouts("NavMazeRandomGoal") == (1, 4)
    assert layouts("NavMazeRandom") == (4, 4)


def test_players_begin_in_any_empty_cell(opened):
    env = opened["NavMazeStatic"].unwrapped
    poses = []
    for seed in range(40):
        env.reset(seed=seed)
        poses.append(env.pose)
    cells = {(int(row), int(column)) for row, column, _ in poses}
    assert len(cells) > 15 and not cells & {item.cell for item in env.items}
    assert all(env.free[cell] for cell in cells)
    assert len({angle for *_, angle in poses}) > 30


@pytest.mark.parametrize(
    ("name", "least", "most"), [("NavMazeStatic", 120, 180), ("NavMazeRandomGoal", 60, 250), ("NavMazeRandom", 40, 250)]
)
def test_the_shortest_path_earns_what_a_maze_is_worth(opened, name, least, most):
    """Every step is accounted for: +10 at the goal, +1 at an apple, never anything else, and 900 of them."""
    env = opened[name].unwrapped
    for seed in range(2):
        rewards = play(env, seed, to_the_goal())
        assert len(rewards) == 900
        assert set(rewards) <= {0, 1, 2, 10, 11}
        assert least < rewards.sum() < most


def test_at_the_goal_the_player_begins_elsewhere_and_the_apples_are_back(opened):
    env = opened["NavMazeStatic"].unwrapped
    found, where, choose = 0, [], to_the_goal()
    apples = {item.cell for item in env.items} - {env.goal}
    taken = []
    env.reset(seed=0)
    for _ in range(900):
        before = env.pose
        _, reward, *_ = env.step(choose(env))
        if reward % 10 == 1:
            taken[-1:] = [(found, min(apples, key=lambda a: abs(a[0] + 0.5 - before[0]) + abs(a[1] + 0.5 - before[1])))]
            where.append(taken[-1])
        if reward >= 10:
            assert np.hypot(before[0] - env.goal[0] - 0.5, before[1] - env.goal[1] - 0.5) < 1
            assert env.pose[0] % 1 == pytest.approx(0.5) and env.pose[1] % 1 == pytest.approx(0.5)  # a cell's centre
            assert (int(env.pose[0]), int(env.pose[1])) not in apples | {env.goal}
            found += 1
    assert found > 8
    assert len(set(where)) == len(where)  # once a life
    assert len({apple for _, apple in where}) < len(where)  # again in another


def test_an_apple_rewards_and_a_lemon_punishes(opened):
    env, seen = opened["SeekAvoid"].unwrapped, set()

    def away(item):
        return np.hypot(item.cell[0] + 0.5 - env.pose[0], item.cell[1] + 0.5 - env.pose[1])

    for seed in range(4):
        env.reset(seed=seed)
        choose, rewards, over = by_chance(seed), [], False
        while not over:
            _, reward, terminated, over, _ = env.step(choose(env))
            rewards.append(reward)
            seen |= {(reward, min(env.items, key=away).kind)} if reward else set()
            assert not terminated
        assert len(rewards) == 300
    assert seen == {(1, "apple"), (-1, "lemon")}


def test_depth_is_observed_on_demand():
    config = Config(env="gunreal/SeekAvoid-v0", env_args={"depth": True})
    envs = make(config, 1, ["depth"])
    step = envs.step(np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1, np.int64))
    assert step.frame.shape == (1, 1, 84, 84) and step.extra["depth"].shape == (1, 84, 84)
    depth = step.extra["depth"][0].astype(int)
    assert depth[-1, 42] < depth[-20, 42]  # the floor
    envs.close()


@opens(lambda: SeekAvoid(rows=25, columns=25, num_apples=0, num_lemons=0, depth=True))
def test_depth_grows_with_the_distance(env):
    assert env.observation_space.contains(env.reset(seed=0)[0])
    far = []
    while not far or far[-1] > 20:
        far.append(int(env.step(FORWARD)[0]["depth"][42, 42]))
    assert far[0] == 127 and (np.diff(far) <= 0).all()
    assert len(set(far)) > 8  # it tells near distances apart


@pytest.mark.parametrize(("observation", "stack", "size"), [("gray", 4, 84), ("rgb", 1, 60), ("rgb", 4, 130)])
def test_training_gets_the_frames_as_they_are_drawn(observation, stack, size):
    config = Config(env="gunreal/NavMazeStatic-v0", observation=observation, frame_stack=stack, frame_size=size)
    channels = 3 if observation == "rgb" else 1
    spec = describe(config)
    assert (spec.frame, spec.stack, spec.dtype, spec.num_actions) == ((channels, size, size), stack, "uint8", 6)
    envs = make(config, 1)
    alone = gymnasium.make(config.env, pixels=observation, size=size)
    step = envs.step(np.zeros(1, np.int32), np.ones(1, bool), np.full(1, 7, np.int64))
    drawn, _ = alone.reset(seed=7)
    assert alone.observation_space == gymnasium.spaces.Box(0, 255, (size, size, channels), np.uint8)
    assert alone.observation_space.contains(drawn) and drawn.std() > 5
    assert (step.frame[0] == drawn.transpose(2, 0, 1)).all()
    envs.close()
    alone.close()


def test_the_smallest_and_the_largest_maze_and_arena_can_be_played():
    for env in (
        NavMaze(rows=5, columns=5, openings=0.0, num_apples=2, size=20),
        NavMaze(rows=25, columns=25, layout=-1, openings=0.0, num_apples=62, pixels="gray"),
        SeekAvoid(rows=5, columns=5, num_apples=3, num_lemons=3, size=480),
        SeekAvoid(rows=25, columns=25, num_apples=263, num_lemons=263),
    ):
        for seed in range(2):
            env.reset(seed=seed)
            assert env.step(FORWARD)[0].any()
        env.close()


def test_walls_differ_in_gray_too_and_darken_from_side_to_side():
    gray = np.array([[art.wall(pattern, side) @ art.GRAY for side in range(4)] for pattern in range(art.PATTERNS)])
    brightness = gray.mean((2, 3))
    assert (np.diff(brightness, axis=1) < -5).all()
    for side in range(4):
        flat = gray[:, side].reshape(art.PATTERNS, -1)
        apart = np.abs(flat[:, None] - flat[None]).mean(2) + 1000 * np.eye(art.PATTERNS)
        assert apart.min() > 8
