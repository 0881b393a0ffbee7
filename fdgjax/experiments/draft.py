"""An experiment before its method is built."""

from collections.abc import Sequence
from typing import NamedTuple

from fdgjax.config import Config, ModelConfig
from fdgjax.contract import Setup
from fdgjax.data.encoding import Encoding
from fdgjax.data.federation import Partition
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import Protocol
from fdgjax.data.sources.domains import Domains
from fdgjax.engine.local import Batching
from fdgjax.methods import Entry
from fdgjax.models.client_model import ClientModel


class Draft(NamedTuple):
    """The parts of an experiment that exist before its method is built.

    config: the config with all open choices made. entry, protocol: of its method and its split.
    seeds: of all runs; split_specs, parts: the specification of each seed's split, and the split.
    model: the client model's config with the method's choices; client: the model made from it. features: whether the
      output of its frozen stages is computed once per image and replaces the image.
    setup: what the method is built for. batching: how local data become minibatches.
    encodings: how each seed's stored values become inputs. label_scales: how its numeric labels are standardised.
    """

    config: Config
    entry: Entry
    protocol: Protocol
    seeds: Sequence[int]
    data: Domains
    split_specs: Sequence[SplitSpec]
    parts: list[Partition]
    model: ModelConfig
    client: ClientModel
    features: bool
    setup: Setup
    batching: Batching
    encodings: Sequence[Encoding | None]
    label_scales: Sequence[LabelScale | None]
