import numpy as np

from fdgjax.data.label_tables import label_histogram


def test_histogram_counts_and_aligns() -> None:
    labels, domains = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 1, 1])
    rows = [np.array([0, 1, 2]), np.array([2, 3, 4, 5])]
    text = label_histogram(labels, rows, ("ape", "b", "cat"), domains=domains, domain_names=("x", "y"))
    lines = text.split("\n")
    assert [line.split() for line in lines] == [
        ["client", "ape", "b", "cat", "all", "domains"],
        ["0", "2", "1", "0", "3", "x"],
        ["1", "0", "1", "3", "4", "x", "y"],
    ]
    server = label_histogram(labels, rows, ("ape", "b", "cat"), server_rows=np.array([0, 1])).split("\n")
    assert [line.split() for line in server[1:3]] == [["server", "2", "0", "0", "2"], ["0", "2", "1", "0", "3"]]
    # Every count ends in the column where its heading ends.
    ends = [lines[0].index(heading) + len(heading) for heading in ("client", "ape", "b", "cat", "all")]
    for line in lines[1:]:
        assert all(line[end - 1].isdigit() and line[end] == " " for end in ends)
    assert label_histogram(labels, [np.array([], int)], ("a", "b", "c")).endswith("0  0  0    0")
