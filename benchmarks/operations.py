"""What one step of local training is made of, in the program lowered for a GPU; none is needed, nothing is run.

python -m benchmarks.operations --models inception alexnet resnet18 --plans library im2col winograd
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from benchmarks.engine_round import method_and_plan, network, random_federation
from benchmarks.jobs import Job
from benchmarks.models import MODELS
from benchmarks.options import base_job
from benchmarks.tables import markdown
from fdgjax.engine import compile_init, compile_round
from fdgjax.methods import METHODS
from fdgjax.nn.lowerings import PLANS
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.registry import lookup

COUNTED = ("convolution", "dot_general", "while", "reduce", "reduce_window", "gather", "scatter")
"""Operations that are no elementwise arithmetic or change of shape, which XLA joins with their neighbours."""


@command
def main(argv: Sequence[str]) -> int:
    """Counts and prints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = options.add_argument
    add("--models", nargs="+", default=["inception"], metavar="MODEL", help=f"of {', '.join(MODELS)}")
    add("--plans", nargs="+", default=["library"], metavar="PLAN", help=f"of {', '.join(PLANS)}: our convolutions")
    add("--method", default="fedavg", help=f"with its defaults: {', '.join(METHODS)}")
    add("--clients", type=positive_number, default=3, help="that run together; their number changes no count")
    add("--platform", default="cuda", help="for which the program is lowered: cuda, cpu or tpu")
    chosen = options.parse_args(argv)
    rows = []
    for model in chosen.models:
        job = base_job(argparse.Namespace(), model)._replace(
            method=lookup("method", chosen.method, METHODS).name, clients=chosen.clients, client_axis="vmap", steps=1
        )
        for plan in chosen.plans:
            lookup("convolution plan", plan, PLANS)
            found = step_operations(job._replace(plan=plan), chosen.platform)
            rows.append([model, plan, *(str(found[name]) for name in COUNTED), str(found.total())])
    print(markdown(["network", "plan", *COUNTED, "all"], rows))
    return 0


def step_operations(job: Job, platform: str) -> Counter[str]:
    """The StableHLO operations of one minibatch's step of all clients, by name: the body of the round's inner loop, the
    functions that it calls and the loops in it included, each once."""
    federation = random_federation(job._replace(batch_size=2))
    method, plan = method_and_plan(network(job), federation, job._replace(batch_size=2))
    state = jax.eval_shape(compile_init(method, plan.execution), jax.numpy.uint32(0), federation)
    program = compile_round(method, plan).trace(state, federation).lower(lowering_platforms=(platform,))
    module: Any = program.compiler_ir("stablehlo")
    functions = {str(one.attributes["sym_name"]): one for one in module.body.operations}
    epochs = next(one for one in inside(functions['"main"'], functions) if one.name == "stablehlo.while")
    steps = next(one for one in inside(epochs.regions[1], functions) if one.name == "stablehlo.while")
    names = (one.name.removeprefix("stablehlo.") for one in inside(steps.regions[1], functions))
    return Counter(name for name in names if name not in ("return", "constant", "func.return", "func.call"))


def inside(holder: Any, functions: dict[str, Any]) -> Iterator[Any]:
    """The operations in an operation or a region, in order, and those of the functions that they call."""
    for region in getattr(holder, "regions", [holder]):
        for block in region.blocks:
            for one in block.operations:
                yield one.operation
                yield from inside(one, functions)
                if one.operation.name == "func.call":
                    yield from inside(functions[str(one.attributes["callee"]).replace("@", '"') + '"'], functions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
