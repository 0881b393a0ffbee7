"""The settings that distinguish experiments."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict

from fdgjax.config import INCIDENTAL
from fdgjax.report.folders import Folder

ROWS = ("method.name", "data.target")
"""Keys that every table shows anyway."""

TRAINING = ("data.image_size", "data.crop_size", "data.augmentation", "data.streaming")
"""Keys of the data that say how they are shown to a network: runs that differ in them are tested on the same."""

CONTENT = (
    *("task", "data.name", "data.image_size", "data.same_images"),
    *("data.label", "data.categorical", "data.ignored", "data.missing", "data.group", "data.split", "data.owner"),
)
"""Keys by which the same files are other samples."""


def distinguished(folders: Sequence[Folder], given: Sequence[Path]) -> list[dict[str, Any]]:
    """The folders' settings, with the key `folder` where a seed is there twice: for all runs of such a method the
    argument that they were found in, and where both are in the same, their own path."""

    def repeated(every: Sequence[dict[str, Any]]) -> list[bool]:
        keys = [json.dumps(own, sort_keys=True) for own in every]
        counts = Counter((key, seed.seed) for key, folder in zip(keys, folders, strict=True) for seed in folder.seeds)
        return [
            any(counts[key, seed.seed] > 1 for seed in folder.seeds) for key, folder in zip(keys, folders, strict=True)
        ]

    every = without_needless_digests([settings_of(folder) for folder in folders])
    twice = {own["method.name"] for own, again in zip(every, repeated(every), strict=True) if again}
    for own, origin in zip(every, given, strict=True):
        own |= {"folder": str(origin)} if own["method.name"] in twice else {}
    for own, folder, again in zip(every, folders, repeated(every), strict=True):
        own |= {"folder": str(folder.path)} if again else {}
    return every


def without_needless_digests(every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings with the digest of the samples only where runs with the same `CONTENT` have different ones: other
    pixels have another digest, and earlier runs have none."""
    found: dict[str, set[str]] = {}
    for own in every:
        found.setdefault(content_of(own), set()).update([own["data.digest"]] if "data.digest" in own else [])
    needless = {content for content, digests in found.items() if len(digests) < 2}
    return [
        {key: value for key, value in own.items() if key != "data.digest" or content_of(own) not in needless}
        for own in every
    ]


def content_of(own: Mapping[str, Any]) -> str:
    """What the settings say of the content of the samples."""
    return json.dumps([own.get(key) for key in CONTENT])


def settings_of(folder: Folder) -> dict[str, Any]:
    """The keys that distinguish experiments, `data.target` style, with the target by its name."""
    flat = flatten_dict(folder.config, sep=".")
    summary = next((seed.summary for seed in folder.seeds if seed.summary), {})
    described = folder.data.target if folder.data else ""
    flat["data.target"] = summary.get("target") or flat["data.target"] or described
    # Without the weights of another network it has always been this one.
    flat["data.scaling"] = flat.get("data.scaling") or ("" if flat.get("model.pretrained") else "signed")
    # Where the samples lie does not matter, but what they are.
    if folder.data and folder.data.content:
        flat["data.digest"] = folder.data.content
    return {key: value for key, value in flat.items() if key not in INCIDENTAL}


def differing_keys(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values differ; a hyperparameter of a method only among the runs of that method."""
    found = []
    for key in dict.fromkeys(key for one in every for key in one):
        groups: dict[str, set[str]] = {}
        for one in every:
            scope = one["method.name"] if key.startswith("method.") else ""
            if key in one or not key.startswith("method."):
                groups.setdefault(scope, set()).add(json.dumps(one.get(key)))
        if key not in ROWS and any(len(values) > 1 for values in groups.values()):
            found.append(key)
    return found


def of_panel(key: str) -> bool:
    """Whether runs that differ in a key are tested on different data."""
    return key.startswith("data.") and key not in TRAINING


def picked(own: Mapping[str, Any], keys: Iterable[str]) -> dict[str, str]:
    """Those of the keys that a run has, in words."""
    return {key: words(own[key]) for key in keys if key in own}


def words(value: Any) -> str:
    """A value of a config as displayed."""
    return "none" if value == "" else str(value)
