"""A method's entry in the registry."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fdgjax.contract import Method, Setup
from fdgjax.methods.parts.hyper import ClientHyper
from fdgjax.methods.parts.requirements import Need
from fdgjax.methods.parts.sharpness import with_sharpness
from fdgjax.utils.errors import UserError


def never(h: Any) -> bool:
    """For `Entry.pixels` and `Entry.pooled`: not with any hyperparameters."""
    del h
    return False


def always(h: Any) -> bool:
    """For `Entry.pixels` and `Entry.pooled`: whatever the hyperparameters."""
    del h
    return True


def nothing(h: Any) -> str:
    """For `Entry.lacks`: it has all that it is made for, whatever the hyperparameters."""
    del h
    return ""


class Entry(NamedTuple):
    """A method of the registry; stands as `ENTRY` in the method's file.

    name: on the command line; also the name of the file. hyper: its hyperparameters, a frozen dataclass. make: makes
    the method for a setup, as its paper has it. summary: one line of description.
    title: the method's name as its paper writes it, for tables and figures; '' if that is `name`.
    unit: the entry of `fdgjax.models.UNITS` that it needs; '' for any.
    head: the entry of `fdgjax.models.HEADS` that it needs; '' for any.
    needs: the parts that its model and the federation must have (`fdgjax.methods.parts.requirements`); an experiment
      that lacks one is refused, or gets it from `Need.unit`.
    unlabelled: whether it learns without labels, from random views, and is evaluated by a linear probe.
    pixels: by its hyperparameters, whether it uses images otherwise than as its model's input, such as random views of
      them; the outputs of the model's frozen stages then cannot be computed once and kept.
    pooled: by its hyperparameters, whether it trains on all data gathered at one client; this is `Method.pooled`, known
      before the method is built.
    lacks: by its hyperparameters, what it was not given and is made for, in words; '' for nothing. It runs without, but
      is no candidate of `fdgjax choose`.
    protocol: the entry of `fdgjax.data.protocols.PROTOCOLS` that its configs start from; with
      `labelled_server` it needs a server that holds labelled data, and runs with no other protocol.
    presets: keys of a config by data set or preset, laid over those of `fdgjax.config.presets`.
    """

    name: str
    hyper: type[Any]
    make: Callable[[Setup, Any], Method]
    summary: str
    title: str = ""
    unit: str = ""
    head: str = ""
    needs: Sequence[Need] = ()
    unlabelled: bool = False
    pixels: Callable[[Any], bool] = never
    pooled: Callable[[Any], bool] = never
    lacks: Callable[[Any], str] = nothing
    protocol: str = "leave_one_out"
    presets: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def check(self) -> None:
        """Raises a `UserError` for a field that is not what the class says, or a hyperparameter of another type than
        the command line reads."""
        what = f"the Entry of method '{self.name}'"
        if not (isinstance(self.hyper, type) and issubclass(self.hyper, ClientHyper)):
            raise UserError(
                f"{what} got {self.hyper!r} as its hyper; expected a class such as FedAvg, or a frozen dataclass made "
                "from one"
            )
        if "__dataclass_fields__" not in vars(self.hyper) and vars(self.hyper).get("__annotations__"):
            raise UserError(
                f"{what} got {self.hyper.__name__} as its hyper, which has fields and is no dataclass itself; expected "
                "@dataclasses.dataclass(frozen=True) above it"
            )
        for field in dataclasses.fields(self.hyper):
            if field.name != "name" and type(field.default) not in (bool, int, float, str):
                given = "no default" if field.default is dataclasses.MISSING else repr(field.default)
                raise UserError(
                    f"{what} got {given} for its hyperparameter {field.name}; expected True or False, a whole number, "
                    "a number or a word, as the command line reads them"
                )
        for name in ("make", "pixels", "pooled", "lacks"):
            if not callable(getattr(self, name)):
                raise UserError(f"{what} got {getattr(self, name)!r} as its {name}; expected a function")
        for need in self.needs:
            if not isinstance(need, Need):
                raise UserError(
                    f"{what} got {need!r} among its needs; expected such as "
                    "fdgjax.methods.parts.requirements.BATCH_NORM"
                )

    def build(self, setup: Setup, h: Any) -> Method:
        """The method for a setup, with sharpness-aware local steps if `h.sharpness` is not 0.

        Raises:
          UserError: `make` returns something else; or whatever it raises.
        """
        method = self.make(setup, h)
        if not isinstance(method, Method):
            raise UserError(
                f"method '{self.name}' got {type(method).__name__} from the function of its Entry; expected it to "
                "return an fdgjax.contract.Method"
            )
        return with_sharpness(method, h)

    @property
    def labels(self) -> str:
        """Where the labels that it learns from are: at the `clients`, at the `server`, or `nowhere`."""
        if self.unlabelled:
            return "nowhere"
        return "server" if self.protocol == "labelled_server" else "clients"
