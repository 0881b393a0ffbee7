"""The tables of the documentation are the registries."""

import re

from fdgjax.aggregation import ROBUST
from fdgjax.config.presets import PRESETS
from fdgjax.data.augmentations.training import AUGMENTATIONS
from fdgjax.data.download.release import amount
from fdgjax.data.download.releases import RELEASES
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.loading import DATASETS
from fdgjax.engine.robustness.attacks import ATTACKS
from fdgjax.evaluation import HEADLINES
from fdgjax.evaluation.number_figures import NUMBER_FIGURES
from fdgjax.evaluation.probability_figures import FIGURES
from fdgjax.methods import METHODS
from fdgjax.models import HEADS, MODELS, UNITS
from tests.docs.pages import ROOT, sections, text_of

DOCS = ROOT / "docs"


def rows(text: str) -> list[tuple[str, str]]:
    """The rows of tables whose first cell is a name: the name, and the other cells."""
    return re.findall(r"^\| \[?`(\w+)`(?:\]\(.*?\))? \| (.*) \|$", text, re.MULTILINE)


def test_the_tables_of_methods_are_the_registry() -> None:
    by_section = {title: rows(text) for title, text in sections(DOCS / "methods.md").items()}
    listed = [row for of_section in by_section.values() for row in of_section]
    assert sorted(listed) == [(name, METHODS[name].summary) for name in sorted(METHODS)]
    for of_section in by_section.values():
        assert of_section == sorted(of_section)
    names = {title: {name for name, _ in of_section} for title, of_section in by_section.items()}
    assert names["No labels: self-supervised"] == {name for name, entry in METHODS.items() if entry.unlabelled}
    assert names["Labelled server, unlabelled clients: semi-supervised"] == {
        name for name, entry in METHODS.items() if entry.protocol == "labelled_server"
    }


def test_the_table_of_data_sets_is_the_registry() -> None:
    before, _, after = text_of(DOCS / "data.md").partition("\n## ")
    assert [name for name, _ in rows(before)] == list(DATASETS)
    assert ["none", *(name for name, _ in rows(after))] == list(AUGMENTATIONS)


def test_the_table_of_what_can_be_fetched_is_the_registry() -> None:
    table = re.findall(
        r"^\| (\w+) \| (\S+ (?:bytes|[KMG]B)) \| (\S+ (?:bytes|[KMG]B)) \| (.*?) \| ",
        text_of(DOCS / "data.md"),
        re.MULTILINE,
    )
    listed = [(name, amount(it.size), amount(it.unpacked), it.pinned) for name, it in RELEASES.items()]
    assert table == listed


def test_every_network_unit_and_head_is_named() -> None:
    page = text_of(DOCS / "models.md")
    assert [name for name, _ in rows(page.partition("\n**")[0])] == list(MODELS)
    assert all(f"`{unit}`" in page for unit in UNITS)
    assert all(f"`{head}`" in page or f"head={head}" in page for head in HEADS if head != "linear")


def test_protocols_figures_and_presets_are_all_there() -> None:
    page = sections(DOCS / "protocols.md")
    assert [name for name, _ in rows(page["Protocols"])] == list(PROTOCOLS)
    assert all(f"`{figure}`" in page["Figures"] for figure in HEADLINES)
    of_probabilities, _, of_numbers = page["Figures"].partition("### Figures of predicted numbers")
    assert [name for name, _ in rows(of_probabilities.partition("### Figures of probabilities")[2])] == list(FIGURES)
    assert [name for name, _ in rows(of_numbers)] == list(NUMBER_FIGURES)
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page["Presets"], re.MULTILINE)))
    assert sorted(listed) == sorted(set(PRESETS) - set(DATASETS))
    assert set(DATASETS) <= set(PRESETS), "each says its image size and its network"


def test_the_tables_of_rules_and_attacks_are_the_registries() -> None:
    page = sections(DOCS / "robustness.md")
    defences = re.findall(r"^\| `(\w+)` \| .* \| (2f \+ \d) \| .* \|$", page["Defences"], re.MULTILINE)
    assert defences == [(name, f"2f + {rule.least(1) - 2}") for name, rule in ROBUST.items()]
    assert {"none", *(name for name, _ in rows(page["Attacks"]))} == set(ATTACKS)
