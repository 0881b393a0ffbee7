"""Folder layouts of data sets: the names of domain and class folders, and their spellings in different releases."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fdgjax.data.sources.listing import Listing
from fdgjax.utils.errors import UserError


class FolderLayout(NamedTuple):
    """The folder layout of a data set; without arguments, a layout that accepts any domains and classes.

    Attributes:
      folder: the name of the data set's own folder; `data_dir` may be that folder or the one that holds it.
      domains: the domain folders in the data set's usual order; empty: all folders, sorted.
      classes: the class folders in the order of the labels; empty: all folders, sorted.
      class_count: the required number of classes where `classes` is empty; 0: any number.
      spellings: from the names of these folders in releases to the names used here.
      only: whether a domain may hold other classes, which are skipped.
      fetched_as: the name by which `fdgjax data` fetches it; empty where it does not.
    """

    folder: str = ""
    domains: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    class_count: int = 0
    spellings: Mapping[str, str] = MappingProxyType({})
    only: bool = False
    fetched_as: str = ""

    @property
    def words(self) -> str:
        """The layout in words, for error messages."""
        return f"{self.folder + '/' if self.folder else ''}<domain>/<class>/*.jpg"

    def get_it(self, data_dir: str) -> str:
        """How to fetch the data, for error messages; empty for a user's own data."""
        return f"; {fetching(self.fetched_as, data_dir)}" if self.fetched_as else ""

    def own(self, name: str) -> str:
        """The name used here for a release's folder."""
        return self.spellings.get(name, name)

    def named(self, listing: Listing) -> dict[str, Path]:
        """The folders of a listing by their names, in the spelling used here.

        Raises:
          UserError: two folders are spellings of one name.
        """
        found: dict[str, Path] = {}
        for own, path in sorted((self.own(path.name), path) for path in listing.folders):
            if own in found:
                raise UserError(
                    f"folders {found[own].name} and {path.name} in {path.parent} are both '{own}'; expected one of them"
                )
            found[own] = path
        return found


def fetching(name: str, data_dir: str) -> str:
    """The command that fetches a data set, in words for an error message."""
    return f"`fdgjax data {name} --dir {shlex.quote(data_dir) if data_dir else 'DIR'}` fetches it"


DOMAINNET = FolderLayout(
    folder="domainnet",
    domains=("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    class_count=345,
    spellings={"DomainNet": "domainnet", "domain_net": "domainnet"},
    fetched_as="domainnet",
)

LAYOUTS: Mapping[str, FolderLayout] = {
    "pacs": FolderLayout(
        folder="PACS",
        domains=("art_painting", "cartoon", "photo", "sketch"),
        classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
        fetched_as="pacs",
    ),
    "office_caltech10": FolderLayout(
        folder="office_caltech_10",
        domains=("amazon", "caltech", "dslr", "webcam"),
        classes=(
            *("back_pack", "bike", "calculator", "headphones", "keyboard"),
            *("laptop_computer", "monitor", "mouse", "mug", "projector"),
        ),
        spellings={
            "Office_Caltech_DA_Dataset": "office_caltech_10",
            "Office_Caltech_DA_Dataset-main": "office_caltech_10",
            "Caltech": "caltech",
            "backpack": "back_pack",
        },
        only=True,  # Office-31's folders hold 21 more classes
        fetched_as="office_caltech10",
    ),
    "domainnet": DOMAINNET,
    "domainnet10": DOMAINNET._replace(
        classes=(
            *("bird", "feather", "headphones", "ice_cream", "teapot"),
            *("tiger", "whale", "windmill", "wine_glass", "zebra"),
        ),
        class_count=0,
        only=True,
        fetched_as="domainnet10",
    ),
    "vlcs": FolderLayout(
        folder="VLCS",
        domains=("Caltech101", "LabelMe", "SUN09", "VOC2007"),
        classes=("bird", "car", "chair", "dog", "person"),
        fetched_as="vlcs",
    ),
    "office_home": FolderLayout(
        folder="office_home",
        domains=("Art", "Clipart", "Product", "Real World"),
        class_count=65,
        spellings={
            "OfficeHomeDataset_10072016": "office_home",
            "OfficeHome": "office_home",
            "Real_World": "Real World",
            "RealWorld": "Real World",
        },
        fetched_as="office_home",
    ),
    "terra_incognita": FolderLayout(
        folder="terra_incognita",
        domains=("location_100", "location_38", "location_43", "location_46"),
        classes=(
            *("bird", "bobcat", "cat", "coyote", "dog"),
            *("empty", "opossum", "rabbit", "raccoon", "squirrel"),
        ),
        fetched_as="terra_incognita",
    ),
    "folder": FolderLayout(),
}
"""Every data set of image folders by its name."""
