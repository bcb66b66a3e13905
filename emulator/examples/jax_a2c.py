"""A2C whose training loop, with the games, is one compiled JAX program: python jax_a2c.py [updates]."""

import sys

import jax
import jax.numpy as jnp
from gunreal_emulator.ffi import DeviceAtari

ENVS, STEPS, DISCOUNT, RATE, ENTROPY = 32, 8, 0.99, 5e-4, 0.01


def weights(key, *shape):
    """Random weights. The last axis has the outputs."""
    return jax.random.normal(key, shape) * (2 / jnp.prod(jnp.array(shape[:-1]))) ** 0.5


def init(key, actions):
    """The parameters of the network."""
    keys = jax.random.split(key, 5)
    return [weights(keys[0], 8, 8, 4, 16), weights(keys[1], 4, 4, 16, 32), weights(keys[2], 9 * 9 * 32, 256),
            weights(keys[3], 256, actions) / 100, weights(keys[4], 256, 1)]  # fmt: skip


def network(params, stacks):
    """Logits `[n, actions]` and values `[n]` of stacks of frames, uint8 `[n, 4, 84, 84]`."""
    x = stacks.transpose(0, 2, 3, 1) / 255.0
    for kernel, stride in zip(params[:2], (4, 2), strict=True):
        x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID",
                                                     dimension_numbers=("NHWC", "HWIO", "NHWC")))  # fmt: skip
    x = jax.nn.relu(x.reshape(len(x), -1) @ params[2])
    return x @ params[3], (x @ params[4])[:, 0]


def main(updates):
    """Trains on Pong. Returns the mean reward of each update, `[updates]`."""
    env = DeviceAtari("pong", ENVS)

    def play(carry, key):
        params, state, stacks = carry
        actions = jax.random.categorical(key, network(params, stacks)[0])
        state, frames, rewards, terminated, truncated = env.step(state, actions)
        after = jnp.concatenate([stacks[:, 1:], frames], 1)
        return (params, state, after), (stacks, actions, rewards, terminated | truncated)

    def loss(params, stacks, actions, returns):
        logits, values = network(params, stacks)
        log_policy = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_policy, actions[:, None], 1)[:, 0]
        advantages = jax.lax.stop_gradient(returns - values)
        entropy = -(jnp.exp(log_policy) * log_policy).sum(1)
        return (-chosen * advantages + 0.5 * (returns - values) ** 2 - ENTROPY * entropy).mean()

    def update(carry, key):
        params, squares, state, stacks = carry
        (_, state, after), (seen, actions, rewards, ends) = jax.lax.scan(
            play, (params, state, stacks), jax.random.split(key, STEPS)
        )
        _, last = network(params, after)

        def backward(following, step):
            reward, end = step
            following = jnp.sign(reward) + DISCOUNT * following * ~end
            return following, following

        _, returns = jax.lax.scan(backward, last, (rewards, ends), reverse=True)
        flat = [x.reshape(-1, *x.shape[2:]) for x in (seen, actions, returns)]
        gradients = jax.grad(loss)(params, *flat)
        squares = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, squares, gradients)  # RMSProp
        params = jax.tree.map(lambda p, g, s: p - RATE * g / jnp.sqrt(s + 1e-5), params, gradients, squares)
        return (params, squares, state, after), rewards.mean()

    @jax.jit
    def train(key):
        first, *keys = jax.random.split(key, updates + 1)
        params, state = init(first, env.num_actions), env.init(jnp.arange(ENVS))
        stacks = jnp.repeat(env.observe(state), 4, 1)
        start = params, jax.tree.map(jnp.zeros_like, params), state, stacks
        return jax.lax.scan(update, start, jnp.stack(keys))[1]

    return train(jax.random.key(0))


if __name__ == "__main__":
    print(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
