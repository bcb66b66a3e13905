"""The learner on TensorFlow: compiled prediction and training, and their state."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gunreal.experience.replay import ALIGN, Past, blank_past
from gunreal.learning.building import isolated
from gunreal.learning.devices import fused, side_by_side
from gunreal.learning.gates import gated
from gunreal.learning.learner import Learner, Scalars
from gunreal.learning.optimizer import update

if TYPE_CHECKING:
    from gunreal.config.schema import Config
    from gunreal.learning.network import Network


class _Operation:
    """A function compiled for one signature and called as a single operation in the calling thread.

    For a small prediction, the dispatch of `tf.function` and the switch to TensorFlow's threads and back cost more than
    the arithmetic.

    Args:
      signature: one nest of `tf.TensorSpec` for each argument.
      spread: whether to use TensorFlow's threads, for functions with long, independent parts.
    """

    def __init__(self, function: Callable[..., Any], signature: list[Any], spread: bool = False):
        import tensorflow as tf

        self._tf, self._spread = tf, spread
        with isolated():
            self._function = tf.function(function, autograph=False).get_concrete_function(*signature)
        self._captured = list(self._function.captured_inputs)
        self._dtypes = [output.dtype for output in self._function.outputs]

    def __call__(self, *args: Any) -> Any:
        tf = self._tf
        inputs = tf.nest.map_structure(self._tensor, args)
        if self._spread:
            return self._function(*inputs)
        flat = [*tf.nest.flatten(inputs), *self._captured]
        outputs = tf.raw_ops.StatefulPartitionedCall(args=flat, Tout=self._dtypes, f=self._function)
        return tf.nest.pack_sequence_as(self._function.structured_outputs, outputs)

    def on(self, variables: Mapping[int, Any]) -> _Operation:
        """The same operation on other variables, which are given by the `id` of the handles that they replace."""
        other = copy.copy(self)
        other._captured = [variables.get(id(handle), handle) for handle in self._captured]
        return other

    def _tensor(self, x: Any) -> Any:
        """Converts `x` to a tensor.

        TensorFlow copies arrays, and copies twice if they are not aligned to `ALIGN`. Large aligned arrays are used in
        place, because the call ends before they can change.
        """
        if isinstance(x, np.ndarray) and x.nbytes > 4096 and x.flags.carray and x.ctypes.data % ALIGN == 0:
            return self._tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        return self._tf.convert_to_tensor(x)


class TensorFlowLearner(Learner):
    """A learner with `tf.function` and `GradientTape`. Functions are traced once, with free batch axes."""

    def __init__(self, network: Network, config: Config):
        super().__init__(network, config)
        import tensorflow as tf

        self._tf = tf
        spec = network.spec
        self._predict = {}
        for head in self._heads:
            of_head = spec.acting if head == "bonus" else spec
            inputs: list[Any] = [tf.TensorSpec((None, *of_head.observation), self._sent)]
            if blank := blank_past(of_head, 1):
                inputs.append(self._signature(blank))
            self._predict[head] = _Operation(functools.partial(network.predict, head), inputs)
        self._trained = self._predict  # on the variables that are trained
        self._copies: list[tuple[list[Any], dict[str, _Operation]]] = []
        self._compiled: dict[tuple[str, ...], _Operation] = {}
        self._methods: dict[str, _Operation] = {}  # of the network, for batches
        self._optimize: dict[tuple[str, ...], _Operation] = {}  # by the names of what is more than a gradient

    def _outputs(self, head: str, observations: np.ndarray, past: Past | None) -> tuple[np.ndarray, ...]:
        inputs = (observations,) if past is None else (observations, past)
        return tuple(output.numpy() for output in self._predict[head](*inputs))

    def _copy(self) -> None:
        sources = [variable.value for variable in (*self._variables, *self._untrained)]
        if not self._copies:
            for _ in range(2):  # in turn, so that a prediction that still runs sees a single version
                copies = [self._tf.Variable(source, trainable=False) for source in sources]
                handles = {id(old.handle): new.handle for old, new in zip(sources, copies, strict=True)}
                self._copies.append((copies, {head: op.on(handles) for head, op in self._trained.items()}))
        self._copies.reverse()
        copies, predict = self._copies[0]
        for new, source in zip(copies, sources, strict=True):
            new.assign(source)
        self._predict = predict

    def _called(self, method: str, batch: Any) -> Any:
        if method not in self._methods:
            self._methods[method] = _Operation(getattr(self.network, method), [self._signature(batch)])
        return self._tf.nest.map_structure(lambda output: output.numpy(), self._methods[method](batch))

    def _signature(self, batch: Any) -> Any:
        tf = self._tf
        return tf.nest.map_structure(lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), batch)

    def _gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], Scalars, dict[str, Any]]:
        parts = tuple(batch)
        with self._lock:  # two trainers may bring their first batch at the same time
            if parts not in self._compiled:
                spread = len(self.network.parts(batch)) > 1 and side_by_side()
                self._compiled[parts] = _Operation(self._loss_gradient, [self._signature(batch)], spread)
        return self._compiled[parts](batch)

    def _loss_gradient(self, batch: Mapping[str, Any]) -> tuple[list[Any], Scalars, dict[str, Any]]:
        # A weight is read where it is first used, so another trainer's update may be seen in some weights only, as in
        # A3C. Preventing this would cost 5 % of an update.
        tf = self._tf
        weights = [variable.value for variable in self._variables]
        is_gated = self._is_gated(batch)
        with tf.GradientTape(is_gated, watch_accessed_variables=False) as tape:
            tape.watch(weights)
            total, (metrics, states, terms) = self._loss(batch)
        gradient = functools.partial(tape.gradient, sources=weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        if is_gated:
            gradients, of_gates = gated(self.network, terms, lambda names: gradient([terms[name] for name in names]))
            metrics |= of_gates
        else:
            gradients = gradient(total)
        moments = {**self.network.moments(batch, metrics), **states}
        return *self._judge(total, metrics, gradients, moments), moments

    def _apply(self, gradients: list[Any], moments: dict[str, Any], scale: float, learning_rate: float) -> None:
        names, arguments = tuple(moments), (gradients, moments, np.float32(scale), np.float32(learning_rate))
        if names not in self._optimize:
            signature = self._tf.nest.map_structure(lambda x: self._tf.TensorSpec(x.shape, x.dtype), arguments)
            self._optimize[names] = _Operation(fused(self._optimizer_step), list(signature))
        self._optimize[names](*arguments)

    def _optimizer_step(
        self, gradients: list[Any], moments: dict[str, Any], scale: Any, learning_rate: Any
    ) -> tuple[()]:
        from keras import ops

        scaled = self.steps.scaled(gradients, scale)
        weights, state = ([v.value for v in kept] for kept in (self._variables, self._slots.values()))
        stepped, new_state = update(self._config, weights, scaled, state, learning_rate, ops)
        stepped = self.steps.taken(weights, stepped)
        for variable, value in zip((*self._variables, *self._slots.values()), (*stepped, *new_state), strict=True):
            variable.assign(value)
        for variable, value in self.network.absorbed(moments):
            variable.assign(value)
        return ()

    def _read(self) -> list[Any]:
        return [variable.value.numpy() for variable in self._kept()]

    def _write(self, arrays: Sequence[np.ndarray]) -> None:
        for variable, array in zip(self._kept(), arrays, strict=False):
            variable.assign(array)

    def _kept(self) -> list[Any]:
        return [*self._variables, *self._untrained, *self._slots.values()]
