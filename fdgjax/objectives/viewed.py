"""An objective on random views of the images."""

import jax

from fdgjax.contract import Batch, Context, Objective, ObjectiveResult, Variables
from fdgjax.data.augmentations.view import View


def on_view(objective: Objective, view: View) -> Objective:
    """The objective on a view of the images."""

    def on_view(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        images = view(jax.random.fold_in(key, 1), batch.inputs)
        return objective(variables, batch._replace(inputs=images), key, context)

    return on_view
