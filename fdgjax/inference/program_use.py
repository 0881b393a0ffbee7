"""How an exported program is used without this package: the model card's section for each kind of samples."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fdgjax.inference.predictor import columns_of
from fdgjax.utils.markdown import markdown_table


class Samples(NamedTuple):
    """A kind of samples: what they are, in words, what several are called, and how the program is used with them, by
    the classifier's facts."""

    words: str
    many: str
    use: Callable[[Mapping[str, Any]], str]


READ = """import jax, json
program = jax.export.deserialize(bytearray(open("program.bin", "rb").read()))
facts = json.load(open("model.json"))
"""
USE_IMAGES = """```python
{read}{answers} = program.call(images)  # uint8 [any batch, {height}, {width}, {channels}], {of}
```

Images are {colour}, of {height} x {width} pixels (others are resized to that square by Pillow's bilinear filter, with
antialiasing), bytes from 0 to 255; scaling is part of the program. Of a file `fdgjax predict` first drops transparency,
takes the upper 8 of 16 bits, and converts to {colour}; EXIF's orientation is ignored."""
USE_ARRAYS = """```python
{read}{answers} = program.call(samples)  # float32 [any batch, {shape}], {of}
```

Samples are like those that it was trained on; their standardisation, if any, is part of the program."""
USE_TABLES = """```python
import csv, numpy
{read}
def number(word):  # NaN for what is no finite number, or has Python's underscores
    try:
        found = float("?" if "_" in word else word)
    except ValueError:
        found = numpy.nan
    return found if numpy.isfinite(found) else numpy.nan

def spelt(word):  # 3 and 3.0 are the same category, and the same word for a missing value
    found = number(word)
    if numpy.isnan(found):
        return word
    return str(int(found)) if found.is_integer() and abs(found) < 2**53 else repr(found)

def cell(text, column):
    word, names = spelt(text.strip()), [spelt(name) for name in column["categories"]]
    if word in facts["missing"] or column["name"] + "=" + word in facts["missing"]:
        return numpy.nan
    if abs(number(word)) >= 2.0**128 - 2.0**103:  # infinite in float32, and so missing
        return numpy.nan
    if names:
        return names.index(word) if word in names else -1
    if numpy.isnan(number(word)):
        raise ValueError("column " + column["name"] + " has " + repr(text) + "; expected numbers")
    return number(word)

with open("new.csv", encoding="utf-8-sig", newline="") as file:
    rows = [row for row in csv.reader(file) if row]  # with semicolons: csv.reader(file, delimiter=";")
header = [name.strip() for name in rows[0]]
samples = [[cell(row[header.index(one["name"])], one) for one in facts["columns"]] for row in rows[1:]]
{answers} = program.call(numpy.array(samples, "float32"))  # {of}
```

Standardisation, missing values and categories are part of the program: a sample has numbers as they are in the table,
NaN for a missing value, and for a category its index among the column's categories, -1 for another one.

{columns}"""


class Answers(NamedTuple):
    """What a program returns: a name for it, and what it is of."""

    answers: str
    of: str


def answers_of(facts: Mapping[str, Any]) -> Answers:
    """What the program returns."""
    if "prediction" in facts:
        return Answers("predictions", f"[batch, 1], {facts['prediction']}")
    return Answers("probabilities", 'of facts["classes"]')


def use_images(facts: Mapping[str, Any]) -> str:
    """How the program is used with images."""
    height, width, channels = facts["image_shape"]
    colour = "RGB" if channels == 3 else "grey"
    said = answers_of(facts)._asdict()
    return USE_IMAGES.format(read=READ, height=height, width=width, channels=channels, colour=colour, **said)


def use_arrays(facts: Mapping[str, Any]) -> str:
    """How the program is used with arrays."""
    shape = ", ".join(map(str, facts["sample_shape"]))
    return USE_ARRAYS.format(read=READ, shape=shape, **answers_of(facts)._asdict())


def use_tables(facts: Mapping[str, Any]) -> str:
    """How the program is used with rows of a table."""
    rows = [
        [f"`{name}`", ", ".join(f"`{one}`" for one in categories) or "numbers"]
        for name, categories in columns_of(facts)
    ]
    table = "\n".join(markdown_table(["column", "values"], rows))
    return USE_TABLES.format(read=READ, columns=table, **answers_of(facts)._asdict())


SAMPLES: Mapping[str, Samples] = {
    "image_shape": Samples("bytes of images", "images", use_images),
    "columns": Samples("rows of a table", "rows", use_tables),
    "sample_shape": Samples("samples", "samples", use_arrays),
}
"""The kinds of samples, by the fact that says what they are."""
