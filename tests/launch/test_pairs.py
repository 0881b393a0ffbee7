"""What UAP gains by seed is what the kept summaries have."""

import json
import re

import numpy as np
import pytest

from launch.kept import kept_cells
from launch.pairs import BASELINE, METHOD, by_seed
from launch.rows import RESULTS

FOLDER = "uap_rotated_mnist"


def test_the_gain_of_a_seed_is_the_mean_of_its_pairs() -> None:
    line = by_seed(kept_cells(FOLDER))
    found = re.findall(r"(-?[\d.]+) with seed (\d+) \(ahead on (\d+) of (\d+)\)", line)
    assert found
    for gain, seed, ahead, of in found:
        ending = "" if seed == "0" else f"-seed{seed}"
        gains = []
        for path in (RESULTS / FOLDER).glob(f"{METHOD}-r*-r*{ending}"):
            other = path.with_name(path.name.replace(METHOD, BASELINE, 1))
            whole = [folder / "summary.json" for folder in (path, other)]
            if re.fullmatch(rf"{METHOD}-r\d+-r\d+{ending}", path.name) and all(file.is_file() for file in whole):
                ours, theirs = (json.loads(file.read_text())["ood_accuracy"] for file in whole)
                gains.append(ours - theirs)
        assert float(gain) == pytest.approx(100 * np.mean(gains), abs=0.051)
        assert (int(ahead), int(of)) == (sum(one > 1e-9 for one in gains), len(gains))
