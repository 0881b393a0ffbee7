"""The data set of a config, with labels as its task needs them."""

from fdgjax.config import DataConfig
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import find_data, load_data
from fdgjax.data.sources.source import Source
from fdgjax.data.sources.tables import TableOptions
from fdgjax.utils.words import words_of


def chosen_data(where: DataConfig, task: str) -> Domains:
    """The data set of a config, for one of `TASKS`."""
    found = load_data(
        where.name,
        data_dir=where.dir,
        image_size=where.image_size,
        cache_dir=where.cache_dir,
        same_images=where.same_images,
        table=table_options(where, task),
        group=where.group,
        split=where.split,
        owner=where.owner,
    )
    return TASKS[task].of(found, where.name)


def found_data(where: DataConfig, task: str) -> Source | Domains:
    """The data set of a config, before its images are decoded."""
    return find_data(where.name, data_dir=where.dir, same_images=where.same_images, table=table_options(where, task))


def table_options(where: DataConfig, task: str) -> TableOptions:
    """What the columns of a table are."""
    lists = (words_of(where.categorical), words_of(where.ignored), words_of(where.missing))
    return TableOptions(where.label, *lists, TASKS[task].numeric, where.group, where.split, where.owner)
