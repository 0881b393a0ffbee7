"""The keys of `config.data`."""

import dataclasses

from fdgjax.data.augmentations.training import AUGMENTATIONS
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.loading import DATASETS
from fdgjax.models.scaling import SCALINGS
from fdgjax.utils.fields import key


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The federation.

    name: data set. dir: the folder that holds it. cache_dir: where decoded data are kept ('' for the user's cache
      folder).
    image_size: pixels a side (0 for the data set's own). crop_size: pixels a side of the network's input, if smaller
      than the stored images: training images are cropped or resized to it, others resized; 0 for `image_size`.
    augmentation: augmentations of training images, comma-separated entries of
      `fdgjax.data.augmentations.training.AUGMENTATIONS`, applied in this order and drawn anew for every sample, round
      and epoch; `none` for nothing. Evaluation never augments.
    scaling: how image bytes are scaled to the network's input, an entry of `fdgjax.models.scaling.SCALINGS`; '' for the
      scaling that the pretrained weights expect, or `signed` without such weights. Once the config
      is read, this key names the entry.
    protocol: `leave_one_out`, `every_domain`, `unseen_client` or `labelled_server`, see `fdgjax.data.protocols`.
    target: the unseen domain ('' for the first, or for none if the protocol has none). server: the domain whose
      labelled data the server holds ('' for the first that is not the target, or for none if the protocol has none).
    excluded: comma-separated domains that take no part: no client trains on them, and no model is tested on them.
    clients: number of clients; 0 for the number of source domains. domains_per_client: number of
      domains that each client holds, d of hFedF v2, Algorithm 5.
    homogeneity: lambda of Bai et al., 2024, from 0 (each client has one domain, or few) to 1 (every client has the same
      mixture of domains); -1 for hFedF's split, by `domains_per_client`.
    label_skew: alpha of the Dirichlet distribution of each client's labels within a domain (Hsu et al., 2019); small
      values are skewed, 0 means no skew.
    same_images: whether all domains show the same images, rotated by each domain's angle, as in UAP; else each domain
      has different images. For `rotated_digits` and `rotated_mnist`.
    label: the column of a table that has the class, or the number to be predicted. categorical: comma-separated columns
      that are categories although they may be written as numbers. ignored: columns that are left out. missing: words or
      numbers that stand for a missing value, besides empty cells, NA and NaN; COLUMN=WORD in one column alone.
    group: which samples, such as a patient's, stay together when samples are held out or dealt to clients: the column
      of a table, which is then no input, or a regular expression for the names of image files, such as
      `^patient[0-9]+`, whose first capture group, or else whole match, is the group; '' for samples that are not
      grouped. Arrays bring their own groups.
    split: which samples are for training, validation and tests: the column of a table, which is then no input, or a
      folder with lists of images, such as `photo_train.txt`; '' to hold samples out at random. Arrays bring their own
      split.
    owner: which client has a sample, in place of the split by `clients`: the column of a table, which is then no input,
      or a regular expression for the names of image files, as for `group`; '' to deal samples to clients. Arrays bring
      their own owners.
    standardise: whether numbers, of a table's columns or of arrays along their last axis, get the mean 0 and the
      deviation 1 of all clients' training samples, from sums that each client makes of its own; else they stay as they
      are.
    validation: fraction of each client's data held out for validation, where no split gives it. test: fraction of each
      client's data held out for tests, where no split gives it. shots: target images given to each client for training.
    split_seed: the seed of the split, the same for all runs, so that they differ in their training alone; -1 for each
      run's own, `config.seed`.
    streaming: whether the images stay on disk and a round requests each batch from the host, for data larger than the
      device's memory; same samples and augmentations, different speed and memory. A streaming round waits for the host
      at every step; without streaming all images are on the device and no round waits for the host.
    """

    name: str = key("rotated_digits", names=DATASETS)
    dir: str = ""
    cache_dir: str = ""
    image_size: int = key(0, least=0, most=4096)
    crop_size: int = key(0, least=0, most=4096)
    augmentation: str = key("none", names=AUGMENTATIONS, several=True)
    scaling: str = key("", names=SCALINGS, optional=True)
    protocol: str = key("leave_one_out", names=PROTOCOLS)
    target: str = ""
    server: str = ""
    excluded: str = ""
    clients: int = key(0, least=0)
    domains_per_client: int = 1
    homogeneity: float = -1.0
    label_skew: float = 0.0
    same_images: bool = False
    label: str = ""
    categorical: str = ""
    ignored: str = ""
    missing: str = "?"
    group: str = ""
    split: str = ""
    owner: str = ""
    standardise: bool = False
    validation: float = key(0.1, between=(0, 1), words="a fraction between 0 and 1, such as 0.1")
    test: float = 0.1
    shots: int = key(0, least=0)
    split_seed: int = key(-1, least=-1, most=2**32 - 1)
    streaming: bool = False
