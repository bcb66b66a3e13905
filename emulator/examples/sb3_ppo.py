"""PPO of Stable-Baselines3 on the vector environment of this package.

For example, python sb3_ppo.py --steps 300000 --seed 1. With --env ale_py:ALE/Breakout-v5, it runs on that of ale-py.
"""

import argparse

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecMonitor


class Atari(VecEnv):
    """A vector environment of Gymnasium, which resets in the same step, for Stable-Baselines3."""

    def __init__(self, env):
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.env = env

    def reset(self):
        return self.env.reset(seed=next((seed for seed in self._seeds if seed is not None), None))[0]

    def step_async(self, actions):
        self.env.unwrapped.send(np.asarray(actions, np.int64))

    def step_wait(self):
        observations, rewards, terminated, truncated, info = self.env.unwrapped.recv()
        done = terminated | truncated
        infos = [{"lives": lives, "TimeLimit.truncated": bool(cut)}
                 for lives, cut in zip(info["lives"], truncated, strict=True)]  # fmt: skip
        for k in np.flatnonzero(done):
            infos[k]["terminal_observation"] = info["final_obs"][k]
        return observations, rewards.astype(np.float32), done, infos

    def close(self):
        self.env.close()

    def get_attr(self, name, indices=None):
        return [getattr(self.env, name)] * self.num_envs

    def set_attr(self, name, value, indices=None):
        setattr(self.env, name, value)

    def env_method(self, name, *args, indices=None, **kwargs):
        return [getattr(self.env, name)(*args, **kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper, indices=None):
        return [False] * self.num_envs


def main(steps, env, seed):
    """Trains for about `steps` agent steps with the settings of rl-baselines3-zoo, and returns the model."""
    envs = gymnasium.make_vec(
        env, num_envs=8, vectorization_mode="vector_entry_point", repeat_action_probability=0.0, episodic_life=True,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )  # fmt: skip
    model = PPO(
        "CnnPolicy", VecMonitor(Atari(envs)), n_steps=128, batch_size=256, n_epochs=4, seed=seed, verbose=1,
        learning_rate=lambda left: 2.5e-4 * left, clip_range=lambda left: 0.1 * left, ent_coef=0.01,
    )  # fmt: skip
    return model.learn(steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--env", default="gunreal_emulator:gunreal/Breakout-v5")
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
