"""`config.privacy` between real parties: the noise that all agree on, who guards what, and what the server records.

Where samples are protected, each node draws its noise itself and trusts nobody. Where clients are, the server adds the
noise and is trusted. Both draw it from a secret of their own (`fdgjax.deploy.account`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fdgjax.config import Config
from fdgjax.deploy.account import ACCOUNT, Cost, Guard, make_guard, refuse_short
from fdgjax.deploy.terms import Agreed, Terms, federation_of, no_samples, to_words
from fdgjax.deploy.wire import Reply, Transport
from fdgjax.engine.exposure import EXPOSURES
from fdgjax.engine.local import Batching
from fdgjax.engine.privacy import Exposure, budget, check_noise, needed_noise
from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import batching_of
from fdgjax.utils.errors import UserError

COVERED = frozenset({"join", "train", "finish"})
"""What a node answers where samples are protected: every further action would need noise of its own."""


def exposures_of(terms: Terms, batching: Batching, lengths: np.ndarray) -> list[Exposure]:
    """What a round releases, by each client's number of samples `[clients]`.

    Everyone counts as if it took part in every round, clients too: all parties know `config.seed`, and so who does.
    """
    return EXPOSURES[terms.config.privacy.unit](0, batching, [federation_of(terms, no_samples(terms), lengths=lengths)])


def with_noise(terms: Terms, transport: Transport) -> Terms:
    """The terms with the noise multiplier by which all rounds cost `config.privacy.epsilon`, from all clients' numbers
    of samples; the same terms where the config has the noise, or protects nobody. Waits for all clients.

    Raises:
      UserError: an epsilon that no noise reaches.
    """
    chosen = terms.config.privacy
    if not chosen.epsilon:
        return terms
    joined = transport.join(to_words(terms), terms.parties)
    lengths = np.array([joined[party] for party in terms.trained], np.int32)
    exposures = exposures_of(terms, batching_of(terms.config), lengths)
    return terms._replace(noise=needed_noise(exposures, chosen.epsilon, chosen.delta, terms.config.rounds))


def cost_of(agreed: Agreed, lengths: np.ndarray) -> Cost:
    """What each release costs the worst of these clients, `[clients]`; raises a `UserError` where the noise is not
    known yet, or is none that `check_noise` allows."""
    config, privacy = agreed.terms.config, agreed.plan.privacy
    if privacy is None or not privacy.noise:
        raise UserError(
            f"config.privacy.epsilon got {config.privacy.epsilon}, but the terms lack the noise that follows from it; "
            "expected terms of a server that runs this version of fdgjax"
        )
    check_noise(privacy.noise)
    exposures = exposures_of(agreed.terms, agreed.plan.batching, lengths)
    delta, rounds = config.privacy.delta, config.rounds
    worst = max(exposures, key=lambda one: budget([one], privacy.noise, delta)(rounds))
    return Cost(worst, privacy.noise, delta, config.privacy.epsilon or budget([worst], privacy.noise, delta)(rounds))


def guards_samples(config: Config) -> bool:
    """Whether nodes protect their samples."""
    return config.privacy.unit == "sample"


def guard_of_node(agreed: Agreed, client: int, count: int, folder: Path, run: str, most: float) -> Guard | None:
    """The guard of a node with so many samples; None where samples are not protected, or there are none.

    `most`: the node's own limit of epsilon, over all experiments; 0 for none. Raises a `UserError` for a delta with
    which a limit would not mean anything, and for a limit that not all rounds keep to.
    """
    if not (guards_samples(agreed.terms.config) and count):
        return None
    lengths = np.zeros(agreed.terms.clients, np.int32)
    lengths[agreed.terms.trained.index(client)] = count
    cost = cost_of(agreed, lengths)._replace(most_of_all=most)
    if most and cost.delta * count >= 1:
        raise UserError(
            f"config.privacy.delta got {cost.delta}, with which one of client {client}'s {count} samples may be shown; "
            f"expected less than {1 / count:.2g}, as node-config has epsilon={most:g}"
        )
    guard = make_guard(folder, run, cost)
    refuse_short(folder / ACCOUNT, run, cost, agreed.terms.config.rounds)
    return guard


def guard_of_server(agreed: Agreed, folder: Path) -> Guard | None:
    """The server's guard; None where it adds no noise."""
    if agreed.terms.config.privacy.unit != "client":
        return None
    return make_guard(folder, "rounds", cost_of(agreed, np.ones(agreed.terms.clients, np.int32)))


def refuse_uncovered(action: str, terms: Terms, client: int, most: float) -> None:
    """Raises a `UserError` for a request whose answer no noise would cover; with `most`, the node's own limit of
    epsilon, for any request without noise, and for all of them if it is the unseen party: that trains nothing,
    `config.privacy` does not protect it, and the others' rounds would be in vain if it only refused to evaluate."""
    if most and client == terms.unseen:
        raise UserError(
            f"client {client} is unseen in this run and would send exact counts, which no noise covers, but "
            f"node-config has epsilon={most:g}; expected a client that trains; leave another client out by --unseen, "
            "or epsilon out of node-config"
        )
    if most and not guards_samples(terms.config):
        raise UserError(
            f"config.privacy.unit got '{terms.config.privacy.unit}', but node-config has epsilon={most:g}; expected "
            "sample; nothing is answered without noise"
        )
    evaluates = action == "evaluate" and client == terms.unseen
    if guards_samples(terms.config) and action not in COVERED and not evaluates:
        raise UserError(
            f"'{action}' was asked with config.privacy.unit=sample, but no noise covers its answer; expected one of "
            f"{', '.join(sorted(COVERED))}; leave it out, or set config.privacy.unit=''"
        )


def privacy_figures(
    agreed: Agreed,
    lengths: np.ndarray,
    rounds: int,
    who: Sequence[int],
    replies: Mapping[int, Reply],
    own: float | None,
) -> Record:
    """The epsilon spent after so many rounds, for the record of the last one; empty where nobody is protected.

    `who`: the participants, by their party's number. `privacy_epsilon` is the largest of all clients, as if each had
    taken part in every round. `client_epsilon`: where samples are protected, what each participant has spent by its own
    account, None where its answer is missing. `own`: what the server has spent by its account.
    """
    privacy = agreed.plan.privacy
    if privacy is None:
        return {}
    if not privacy.samples:
        return {"privacy_epsilon": own}
    exposures = exposures_of(agreed.terms, agreed.plan.batching, lengths)
    told = [float(replies[one].facts["privacy_epsilon"]) if one in replies else None for one in map(int, who)]
    bound = budget(exposures, privacy.noise, agreed.terms.config.privacy.delta)(rounds)
    return {"privacy_epsilon": max([bound, *(one for one in told if one is not None)]), "client_epsilon": told}
