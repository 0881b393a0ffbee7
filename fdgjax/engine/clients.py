"""The client axis is an execution choice: the same function over all clients, at once, one by one or in chunks, on one
device or split over several."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.stages import Wrapped

from fdgjax.aggregation.gradients import one_by_one
from fdgjax.contract import Execution, PyTree
from fdgjax.data.sharded import ShardedImages
from fdgjax.engine.devices import assigned_slots, each_process
from fdgjax.engine.loops import Repeat, dynamic_loop, masked_loop
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup

Over = Callable[[Callable[..., PyTree], int], Callable[..., PyTree]]
MESH_AXIS = "clients"
PATIENCE_SECONDS = 30 * 24 * 3600


def _vmap(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    del chunk
    return lambda shared, *rows: jax.vmap(partial(function, shared))(*rows)


def _map(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    del chunk
    return one_by_one(function)


def _chunk(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    return lambda shared, *rows: jax.lax.map(lambda row: function(shared, *row), rows, batch_size=chunk)


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _auto(function: Callable[..., PyTree], chunk: int) -> Callable[..., PyTree]:
    # A CPU gains nothing from vectorising over clients and pays for the padding of short ones.
    return (_map if _on_cpu() else _vmap)(function, chunk)


class ClientAxis(NamedTuple):
    """A way to run a function of one client over stacked clients.

    over: the transformation. together: whether several clients step at once, so that all wait for the longest.
    """

    over: Over
    together: Callable[[], bool]


CLIENT_AXES: Mapping[str, ClientAxis] = {
    "auto": ClientAxis(_auto, lambda: not _on_cpu()),
    "vmap": ClientAxis(_vmap, lambda: True),
    "map": ClientAxis(_map, lambda: False),
    "chunk": ClientAxis(_chunk, lambda: True),
}


def over_clients(
    function: Callable[..., PyTree], execution: Execution, steps: jax.Array | None = None
) -> Callable[..., PyTree]:
    """`function` of one client's rows, `(shared, *rows)`, as a function of stacked rows `[clients, ...]`.

    Args:
      function: takes what all clients share and pytrees of one client, returns pytrees of one client. It must not close
        over an array that the surrounding program computes: on several devices every input has to be an argument.
      execution: how it is run.
      steps: each client's number of steps, int32 `[clients]`, by which clients are assigned to devices if the execution
        says so; None for clients that work equally long.

    Raises:
      UserError: unknown axis, or more devices than there are.
    """
    over = lookup("client_axis", execution.axis, CLIENT_AXES).over(function, execution.chunk)
    if execution.devices == 1:
        return over
    over = over_devices(over, client_mesh(execution))
    return over if steps is None or not execution.slots else by_steps(over, steps, execution)


def repeat_of(execution: Execution) -> Repeat:
    """The loop over minibatches: clients that step together all take as many steps as the longest, a static number; a
    client that steps alone takes its own number.

    Raises:
      UserError: unknown axis.
    """
    together = lookup("client_axis", execution.axis, CLIENT_AXES).together()
    return partial(masked_loop, unroll=execution.unroll) if together else dynamic_loop


def over_devices(function: Callable[..., PyTree], mesh: Mesh) -> Callable[..., PyTree]:
    """`function` of stacked rows, with an equal share of the rows on each device.

    If the number of rows is not a multiple of the number of devices, rows of zeros are appended and their results
    dropped. Training and evaluation treat them as clients without samples, so that their devices finish early. Results
    stay on the device that computed them until they are used elsewhere.
    """
    by_client = PartitionSpec(mesh.axis_names)

    def split(shared: PyTree, rows: PyTree) -> PyTree:
        def whole_or_own(leaf: PyTree) -> PartitionSpec:
            return by_client if isinstance(leaf, ShardedImages) else PartitionSpec()

        # With check_vma, the gradient with respect to a replicated value would be summed over the devices, that is over
        # other clients, but a client's training must not depend on them.
        return jax.shard_map(
            lambda shared, rows: function(shared, *rows),
            mesh=mesh,
            in_specs=(
                jax.tree.map(whole_or_own, shared, is_leaf=lambda leaf: isinstance(leaf, ShardedImages)),
                by_client,
            ),
            out_specs=by_client,
            check_vma=False,
        )(shared, rows)

    def over(shared: PyTree, *rows: PyTree) -> PyTree:
        clients = len(jax.tree.leaves(rows)[0])
        if clients % mesh.size == 0:
            return split(shared, rows)
        missing = -clients % mesh.size
        filled = jax.tree.map(
            lambda leaf: jnp.concatenate([leaf, jnp.zeros((missing, *leaf.shape[1:]), leaf.dtype)]), rows
        )
        results = split(shared, filled)
        return jax.tree.map(lambda leaf: leaf[:clients], results)

    return over


def by_steps(over: Callable[..., PyTree], steps: jax.Array, execution: Execution) -> Callable[..., PyTree]:
    """`over` of rows in the order in which the devices have them, see `assigned_slots`; its results are in the clients'
    order. Rows of zeros fill a device that has fewer clients than others."""
    devices, clients = execution.devices, len(steps)
    places = assigned_slots(steps, devices, execution.slots)
    client_at = jnp.full(devices * execution.slots, clients).at[places].set(jnp.arange(clients))

    def moved(shared: PyTree, *rows: PyTree) -> PyTree:
        filled = jax.tree.map(
            lambda leaf: jnp.concatenate([leaf, jnp.zeros((1, *leaf.shape[1:]), leaf.dtype)])[client_at], rows
        )
        return jax.tree.map(lambda leaf: leaf[places], over(shared, *filled))

    return moved


def client_mesh(execution: Execution) -> Mesh:
    """The devices that clients are split over: the caller's mesh, else a one-axis mesh over the first devices, equally
    many per process.

    Raises:
      UserError: more devices than there are, or a number that is no multiple of the number of processes.
    """
    if execution.mesh is not None:
        return execution.mesh
    devices, found = execution.devices, each_process()
    if devices % len(found):
        raise UserError(
            f"config.devices got {devices}; expected a multiple of {len(found)}, the number of processes, each of "
            "which has the same share; change it, or leave it out"
        )
    share, most = devices // len(found), min(map(len, found))
    if share > most:
        raise UserError(
            f"config.devices got {devices}; expected at most {most * len(found)}, as many as JAX sees on "
            f"{jax.default_backend()}; jax_num_cpu_devices, set before JAX starts, splits a CPU into more"
        )
    chosen = [device for own in found for device in own[:share]]
    if len(found) > 1:  # in the order of the processes, so that each has its clients' images
        return Mesh(np.array(chosen), (MESH_AXIS,), axis_types=(AxisType.Auto,))
    return jax.make_mesh((devices,), (MESH_AXIS,), axis_types=(AxisType.Auto,), devices=chosen)


def callers_mesh() -> Mesh | None:
    """The mesh that the caller has set by `jax.set_mesh`, of two devices or more; None for none.

    Raises:
      UserError: a mesh whose axes are not all of type Auto: the engine does not annotate its arrays with shardings.
    """
    mesh = jax.sharding.get_mesh()
    if mesh.empty or mesh.size == 1:
        return None
    if any(kind != AxisType.Auto for kind in mesh.axis_types):
        raise UserError(
            f"the mesh of jax.set_mesh got axes of types {', '.join(str(kind.name) for kind in mesh.axis_types)}; "
            "expected Auto; make it by jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,))"
        )
    return mesh


def compiler_options(devices: int) -> dict[str, int] | None:
    """The XLA options of a program over several devices; None for the defaults.

    The devices of a CPU synchronise when they aggregate their clients' messages, and XLA aborts the process where one
    waits for another for 40 seconds. But clients differ in size, so a device that finishes early may wait much longer.
    (After 20 seconds XLA warns that a thread may be stuck; that limit cannot be set here.)
    """
    if devices == 1 or jax.default_backend() != "cpu":
        return None
    return {"xla_cpu_collective_call_terminate_timeout_seconds": PATIENCE_SECONDS}


def jit(function: Callable[..., PyTree], execution: Execution, **options: Any) -> Wrapped:
    """`jax.jit` of a program that calls `over_clients`: results are replicated on every device, and so are arguments;
    with several processes, arguments stay where they are."""
    place = everywhere(execution)
    if jax.process_count() == 1:
        options["in_shardings"] = place
    return jax.jit(function, out_shardings=place, compiler_options=compiler_options(execution.devices), **options)


def everywhere(execution: Execution) -> NamedSharding | None:
    """The sharding of state and data: replicated on every device; None for a single device."""
    return None if execution.devices == 1 else NamedSharding(client_mesh(execution), PartitionSpec())
