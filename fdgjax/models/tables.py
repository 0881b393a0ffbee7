"""Networks for rows of a table and for vectors of features: softmax regression, and a multilayer perceptron."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax

from fdgjax.models.stages import ALL_STAGES, StageRange, last_step, through
from fdgjax.models.units import Unit, plain_unit, widen
from fdgjax.nn import Dense
from fdgjax.utils.errors import UserError

HIDDEN = (64, 64)
"""Features of the hidden layers at width 1."""
STAGES = ("hidden_1", "hidden_2")
"""Each includes the dropout after it."""


class Linear(nn.Module):
    """Softmax (for two classes: logistic) regression, `logits = x W + b`: m = columns features, (columns + 1) * classes
    parameters. Inputs of several axes are flattened.

    Attributes:
      classes: number of logits.
      width: no effect, there are no hidden features.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the plain one alone, as there is no layer but the last.
      part: the steps that are run, of which there is one.
    """

    classes: int
    width: float = 1.0
    init_name: str = "torch"
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ...]` -> logits `[batch, classes]`.

        Raises:
          UserError: another unit than the plain one.
        """
        del train
        if self.unit is not plain_unit:
            raise UserError(
                "the model 'linear' has no units to replace, only its last layer; expected config.model.unit empty and "
                "a method that needs none (FDSE and FedFA do), or the model 'mlp'"
            )
        head = last_step(self, Dense(self.classes, init_name=self.init_name, name="head"))
        return through([lambda x: head(x.reshape(len(x), -1))], self.part, x)


class MLP(nn.Module):
    """Hidden linear layers with ReLU, each with dropout after it, and a linear layer to logits: two hidden layers of
    64, which are 6,402 parameters for 32 columns and two classes. Inputs of several axes are flattened.

    Not from a paper. No BatchNorm unless `unit` has it, so that clients differ in their parameters only.

    Attributes:
      classes: number of logits.
      width: factor on the numbers of hidden features.
      hidden: features of each hidden layer at width 1.
      dropout: rate after each hidden layer.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of the hidden layers (see `fdgjax.models.units`): `norm` gives FedBN its BatchNorm, `dse` FDSE
        its skew erasers, with a window of 1.
      part: the steps that are run, of `hidden_1`, `hidden_2`, ... and the last layer.
    """

    classes: int
    width: float = 1.0
    hidden: Sequence[int] = HIDDEN
    dropout: float = 0.0
    init_name: str = "torch"
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ...]` -> logits `[batch, classes]`; dropout (rng `dropout`) only when `train`."""
        dense = partial(Dense, init_name=self.init_name)

        def layer(x: jax.Array, number: int) -> jax.Array:
            features = widen(self.hidden[number - 1], self.width)
            x = self.unit(dense, features, name=f"hidden_{number}")(x.reshape(len(x), -1), train=train)
            return nn.Dropout(self.dropout, deterministic=not train, name=f"dropout_{number}")(x)

        layers = [partial(layer, number=i) for i in range(1, len(self.hidden) + 1)]
        return through([*layers, last_step(self, dense(self.classes, name="head"))], self.part, x)
