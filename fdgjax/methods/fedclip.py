"""FedCLIP: an adapter between a fixed encoder's features and fixed embeddings of the classes is all that is trained.

    f' = a(f) * f,   a(f) = softmax(W_2 tanh(W_1 f + b_1) + b_2)          f the encoder's features, t_k of class k
    z_k = scale cos(f', t_k)
    L  = (CE over j of z_i,y(j) with j = i  +  CE over i of z_i,y(j) with i = j) / 2        the minibatch's samples i, j

The predicted class is that of the largest z. Without an adapter (`adapter=False`) nothing is trained: the zero-shot
classifier by cosine. `fdgjax.models.adapter` has the adapter; t_k are the columns of the last layer's kernel, which, as
the encoder, has no gradient. `loss=classes` is the cross-entropy over all classes instead. A client sends its adapter.

The encoder is any network of fdgjax, best with all its stages frozen (`config.model.frozen=-1`): features are then
computed once, and only the adapter and the embeddings are sent to clients. t_k come from a file,
`class_embeddings=FILE.npy`, float `[classes, m]` in the order of the classes, such as CLIP's text encoder gives for
their names. Without a file they are the columns with which the model starts, and a log line says so.

Lu, Hu, Wang and Xie, "FedCLIP: Fast generalization and personalization for CLIP in federated learning", 2023, and
its official code (microsoft/PersonalizedFL, fedclip). The global model predicts for an unseen domain.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, ServerStep, Setup, Trained, Variables
from fdgjax.methods.fedavg import FedAvg, Message, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer, lenient, trained_where
from fdgjax.methods.parts.requirements import ADAPTER, CLASSES, last_layer
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.objectives import mean_cross_entropy
from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, merge, select, unflatten

OFFICIAL = "Lu et al., official code"
ADAPTER_PATH = "params/adapter/"
"""How the paths of the adapter's variables begin; all others are fixed."""
OUTER = "/adapter/outer/"
"""The part of a path that is the adapter's last layer's."""


def in_batch(logits: jax.Array, batch: Batch) -> jax.Array:
    """The contrast of a minibatch's samples with the embeddings of their classes, as CLIP is trained: the mean of the
    cross-entropies over embeddings for each sample and over samples for each embedding; logits `[batch, classes]`."""
    pairs = logits[:, batch.labels]
    absent = jnp.where(batch.mask > 0, 0, -1e30)[None]
    of_sample, of_embedding = (jax.nn.logsumexp(each + absent, axis=1) for each in (pairs, pairs.T))
    far = (of_sample + of_embedding) / 2 - jnp.diagonal(pairs)
    return masked_mean(far, batch.mask * batch.label_weight)


LOSSES: Mapping[str, Callable[[jax.Array, Batch], jax.Array]] = {"batch": in_batch, "classes": mean_cross_entropy}
"""Losses of logits `[batch, classes]`."""


@dataclasses.dataclass(frozen=True)
class FedCLIP(FedAvg):
    """FedAvg's hyperparameters, of which the optimiser's are the paper's, and the adapter's.

    class_embeddings: an .npy file of the classes' embeddings; '' for the last layer's initial columns.
    adapter: whether there is one. scale: of the cosines, exp of CLIP's logit scale. loss: an entry of `LOSSES`.
    """

    client_learning_rate: float = hyper(5e-5, above=0, search=(5e-4, 5e-5, 5e-6), source=f"{OFFICIAL}: 5e-5")
    client_weight_decay: float = hyper(0.2, search=(0.0, 0.02, 0.2), source=f"{OFFICIAL}: 0.2")
    class_embeddings: str = hyper("", examples=True, search=("",), source="Lu et al.: CLIP's text encoder")
    adapter: bool = hyper(True, search=(True,), source="Lu et al.")
    scale: float = hyper(100.0, above=0, search=(10.0, 30.0, 100.0), source="CLIP: 100")
    loss: str = hyper("batch", search=tuple(LOSSES), source=f"{OFFICIAL}: batch")


def fedclip(setup: Setup, h: FedCLIP) -> Method:
    """FedAvg of the adapters.

    Raises:
      UserError: an unknown loss, or embeddings that cannot be read or do not fit.
    """
    loss = lookup("loss", h.loss, LOSSES)
    shapes = flatten(setup.model.shapes())
    kernel = last_layer(setup.model)
    bias = kernel.replace("/kernel", "/bias")
    size, classes = shapes[kernel].shape
    given = read_embeddings(h.class_embeddings, classes, size) if h.class_embeddings else None
    if given is None:
        logging.getLogger("fdgjax").info(
            f"fedclip embeds the classes as the model's last layer starts; expected an .npy file, float [{classes}, "
            f"{size}], of their embeddings in the encoder's space as config.method.class_embeddings"
        )

    def init(key: jax.Array) -> Variables:
        leaves = flatten(setup.model.init(key))
        columns = leaves[kernel] if given is None else jnp.asarray(given.T)
        lengths = jnp.maximum(jnp.linalg.norm(columns, axis=0, keepdims=True), 1e-6)
        leaves |= {kernel: h.scale * columns / lengths}
        leaves |= {bias: jnp.zeros_like(leaves[bias])} if bias in leaves else {}
        if not h.adapter:  # equal attention to all numbers of a vector leaves its direction as it is
            leaves |= {path: jnp.zeros_like(leaf) for path, leaf in leaves.items() if OUTER in path}
        return unflatten(leaves)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        # A gradient of what is fixed would count in the norms of clipping and of sharpness-aware steps.
        fixed = jax.lax.stop_gradient(select(variables, part_of, "fixed"))
        whole = merge(select(variables, part_of, "adapter"), fixed)
        # The encoder is fixed: it neither drops features nor moves its statistics.
        output, _ = setup.model.apply(whole, batch.inputs, False, key)
        return loss(output.logits, batch), {name: tree for name, tree in variables.items() if name != "params"}

    base = fedavg(setup._replace(model=setup.model._replace(init=init)), h, objective=objective)

    def finish(context: Context, trained: Trained) -> tuple[Message, ClientVariables]:
        message, row = base.finish(context, trained)
        return message._replace(update=select(message.update, part_of, "adapter")), row

    def update(
        server: ServerState, clients: ClientVariables, step: Message, server_step: ServerStep
    ) -> tuple[ServerState, ClientVariables]:
        still = jax.tree.map(jnp.zeros_like, select(server.variables, part_of, "fixed"))
        after: tuple[ServerState, ClientVariables] = base.update(
            server, clients, step._replace(update=merge(step.update, still)), server_step
        )
        return after

    optimizer = trained_where(
        lambda path: h.adapter and part_of(f"params/{path}") == "adapter", client_optimizer(h, setup.rounds)
    )
    return base._replace(optimizer=lenient(optimizer), finish=finish, update=update)


def part_of(path: str) -> str:
    """Whether a variable is the `adapter`'s or `fixed`."""
    return "adapter" if path.startswith(ADAPTER_PATH) else "fixed"


def read_embeddings(file: str, classes: int, size: int) -> np.ndarray:
    """The embeddings of classes, float32 `[classes, size]`.

    Raises:
      UserError: no such file, another shape, or numbers that are not finite.
    """
    wanted = f"expected an .npy file of finite floats [{classes}, {size}], a row for each class in their order"
    try:
        found = np.load(Path(file).expanduser(), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"config.method.class_embeddings got {file} ({reason}); {wanted}") from error
    shape = list(getattr(found, "shape", ()))
    if shape != [classes, size]:
        raise UserError(f"config.method.class_embeddings got {file} of shape {shape}; {wanted}")
    if not (np.issubdtype(found.dtype, np.number) and np.isfinite(found).all() and np.any(found, axis=1).all()):
        raise UserError(f"config.method.class_embeddings got {file} with numbers that are no directions; {wanted}")
    return found.astype(np.float32)


ENTRY = Entry(
    "fedclip",
    FedCLIP,
    fedclip,
    "an adapter between features and embeddings of classes (Lu et al., 2023)",
    title="FedCLIP",
    head="adapter",
    needs=(CLASSES, ADAPTER),
    lacks=lambda h: "" if h.class_embeddings else "config.method.class_embeddings",
)
