"""PPO of Stable-Baselines3 on the vector environment of this package: python sb3_ppo.py [agent steps]."""

import sys

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


def main(steps):
    """Trains for about `steps` agent steps, and returns the model."""
    env = gymnasium.make_vec(
        "gunreal_emulator:gunreal/Breakout-v5", num_envs=8, repeat_action_probability=0.0, episodic_life=True,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )  # fmt: skip
    model = PPO("CnnPolicy", VecMonitor(Atari(env)), n_steps=32, batch_size=256, n_epochs=4, seed=1, verbose=1)
    return model.learn(steps)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
