"""Before the first round: the federated standardisation of a table's columns.

Each client sends the count, mean and sum of squares of its own numeric columns, and the count of each category; the
server merges them and tells all clients the result, which is that of the pooled tables. No row leaves a client.
"""

from collections.abc import Sequence

import numpy as np

from fdgjax.data.columns import ColumnStatistics, column_statistics, layout_of, merged
from fdgjax.data.encoding import standardising
from fdgjax.deploy.terms import OwnSamples, Terms, to_words
from fdgjax.deploy.wire import Reply, Request, Transport
from fdgjax.utils.errors import UserError


def with_statistics(terms: Terms, own: OwnSamples, transport: Transport) -> Terms:
    """The terms with the encoding by all clients' statistics, and by those of the server's own samples, if it has some;
    the same terms if nothing is standardised. Waits for all clients.

    Raises:
      UserError: a client's error.
    """
    if not terms.config.data.standardise:
        return terms
    words, layout = to_words(terms), layout_of(terms.columns)
    transport.join(words, terms.parties)
    requests = [Request("describe", client, words, {}, {}) for client in terms.trained]
    each = [from_reply(reply) for reply in sorted(transport.exchange(requests, 0.0), key=lambda reply: reply.client)]
    each += [column_statistics(own.inputs, layout)] if len(own.labels) else []
    return terms._replace(encoding=standardising(merged(each), layout))


def of_party(own: OwnSamples, terms: Terms) -> dict[str, np.ndarray]:
    """The statistics of a party's samples, as the arrays of a message."""
    return dict(column_statistics(own.inputs, layout_of(terms.columns))._asdict())


def from_reply(reply: Reply) -> ColumnStatistics:
    """The statistics that a client sent; raises a `UserError` for its error."""
    if reply.error:
        raise UserError(f"client {reply.client}: {reply.error}")
    names: Sequence[str] = ColumnStatistics._fields
    return ColumnStatistics(*(np.asarray(reply.arrays[name], np.float64) for name in names))
