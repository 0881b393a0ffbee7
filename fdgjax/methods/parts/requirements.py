"""What a method requires of its model, checked before training, and what it needs to know of it."""

import jax

from fdgjax.contract import Method, Model, Output, PyTree
from fdgjax.data.federation import Federation
from fdgjax.models.depth import depth_order
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import any_key
from fdgjax.utils.variables import flatten


def with_features(method: Method, model: Model, name: str) -> Method:
    """The method, with an `init` that raises a `UserError` for a model without features."""

    def init(key: jax.Array, federation: Federation) -> tuple[PyTree, PyTree]:
        require_features(model, federation.images.shape[1:], name)
        return method.init(key, federation)

    return method._replace(init=init)


def require_features(model: Model, image_shape: tuple[int, ...], name: str) -> None:
    """Raises a `UserError` for a model without features; computes shapes only."""
    if output_shapes(model, image_shape).features.shape[-1] == 0:
        raise UserError(
            f"method '{name}' got a model without features; expected one that sows its last layer's input: "
            'self.sow("intermediates", "features", x)'
        )


def output_shapes(model: Model, image_shape: tuple[int, ...]) -> Output:
    """Shapes of a model's outputs for one image."""
    variables = jax.eval_shape(model.init, any_key())
    image = jax.ShapeDtypeStruct((1, *image_shape), "float32")
    output: Output
    output, _ = jax.eval_shape(lambda v, x, key: model.apply(v, x, False, key), variables, image, any_key())
    return output


def last_layer(model: Model) -> str:
    """The path of the last layer's kernel, `[m, classes]`."""
    return f"params/{depth_order(model.init)[-1]}/kernel"


def projection_size(model: Model) -> int:
    """The dimension of a model's projections: the outputs of its projector, or of its last layer if it has no
    projector."""
    shapes = flatten(jax.eval_shape(model.init, any_key()))
    out = "params/projector/out/kernel"
    return int(shapes[out if out in shapes else last_layer(model)].shape[-1])
