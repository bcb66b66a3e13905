"""A stand-in for Ray, whose actors live in this process and answer at once, or when a test lets them."""

from __future__ import annotations

import copy
import types

from gunreal.cluster.engine import Machine


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class GetTimeoutError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Ref:
    """A result: a value, an error, or neither yet."""

    def __init__(self, value=None, error=None, ready=True):
        self.value, self.error, self.ready = value, error, ready


class Actor:
    """An actor of an object. `dies` names methods at which it dies, `hangs` says that nothing is answered."""

    def __init__(self, kind, args):
        self.object, self.dead, self.hangs, self.dies = kind(*args), False, False, set()

    def __getattr__(self, name):
        return Method(self, name)


class Method:
    def __init__(self, actor, name, returns=1):
        self._actor, self._name, self._returns = actor, name, returns

    def options(self, num_returns):
        return Method(self._actor, self._name, num_returns)

    def remote(self, *args):
        refs = self._call(args)
        return refs[0] if self._returns == 1 else refs

    def _call(self, args):
        actor, count = self._actor, self._returns
        actor.dead = actor.dead or self._name in actor.dies
        failed = [arg.error for arg in args if isinstance(arg, Ref) and arg.error]
        if actor.dead or failed:
            error = RayActorError("the actor died") if actor.dead else failed[0]
            return [Ref(error=error) for _ in range(count)]
        if actor.hangs or any(isinstance(arg, Ref) and not arg.ready for arg in args):
            return [Ref(ready=False) for _ in range(count)]
        try:
            found = getattr(actor.object, self._name)(*(arg.value if isinstance(arg, Ref) else arg for arg in args))
        except Exception as error:  # noqa: BLE001  as Ray does
            return [Ref(error=RayTaskError(error)) for _ in range(count)]
        found = copy.deepcopy(found)  # a process shares no memory with another one
        return [Ref(found)] if count == 1 else [Ref(value) for value in found]


class Ray:
    """The functions of Ray that gunreal uses."""

    exceptions = types.SimpleNamespace(
        RayError=RayError,
        RayActorError=RayActorError,
        RayTaskError=RayTaskError,
        ActorUnavailableError=ActorUnavailableError,
        GetTimeoutError=GetTimeoutError,
    )

    def put(self, value):
        return Ref(value)

    def get(self, refs, timeout=None):
        if isinstance(refs, list):
            return [self.get(ref) for ref in refs]
        if refs.error:
            raise refs.error
        if not refs.ready:
            raise GetTimeoutError
        return refs.value

    def wait(self, refs, num_returns=1, timeout=None):
        ready = [ref for ref in refs if ref.ready][:num_returns]
        return ready, [ref for ref in refs if not any(ref is other for other in ready)]

    def kill(self, actor):
        actor.dead = True


class Engine:
    """`gunreal.cluster.engine.Engine` on some machines."""

    def __init__(self, *hosts):
        self.ray, self.hosts, self.actors, self.is_lost, self.is_closed = Ray(), list(hosts), [], False, False
        self.cut: set[str] = set()  # hosts without a network
        self.gpus = 0.0  # of each host

    def close(self):
        self.is_closed = True

    def machines(self):
        return [Machine(f"id of {host}", host, self.gpus, (host, 1)) for host in self.hosts]

    def reaches(self, machine):
        return machine.host not in self.cut

    def wait(self, refs, seconds):
        return all(ref.ready for ref in refs)

    def kill(self, actor):
        self.ray.kill(actor)

    def call(self, function, *args, machine):
        return Ref(function(*args), ready=self.reaches(machine))

    def actor(self, kind, *args, machine, share=0, calls=1):
        actor = Actor(kind, args)
        self.actors.append((machine.host, actor))
        return actor
