"""The contract: a federated method is a value of pure functions, and the engine does everything else.

A method defines only what differs from federated averaging. Its state lives in two pytrees, `server` and `clients`
(stacked, client axis first), which hold all method state that a run needs to continue exactly. Functions of one client
see one row of `clients`; the engine adds the client axis.

`Method` is in `method.py`, the functions it is made of are in `functions.py`, their arguments and results in
`values.py`.
"""

from fdgjax.contract.functions import (
    AdaptFn,
    AggregateFn,
    FinishFn,
    InitFn,
    LabelFn,
    Objective,
    ObjectiveResult,
    Order,
    PredictFn,
    PrepareFn,
    Rule,
    SendFn,
    StartFn,
    TrainedFn,
    UnseenFn,
    UpdateFn,
    WeightsFn,
)
from fdgjax.contract.method import WHOLE, Lens, Method, ServerTraining
from fdgjax.contract.values import (
    WHOLE_DOMAIN,
    Batch,
    Context,
    Each,
    Execution,
    Fit,
    Model,
    Output,
    Prepared,
    PseudoLabels,
    Samples,
    Scope,
    ServerStep,
    Setup,
    Trained,
    Unlabelled,
)
from fdgjax.utils.variables import PyTree, Variables

__all__ = [
    "WHOLE",
    "WHOLE_DOMAIN",
    "AdaptFn",
    "AggregateFn",
    "Batch",
    "Context",
    "Each",
    "Execution",
    "FinishFn",
    "Fit",
    "InitFn",
    "LabelFn",
    "Lens",
    "Method",
    "Model",
    "Objective",
    "ObjectiveResult",
    "Order",
    "Output",
    "PredictFn",
    "PrepareFn",
    "Prepared",
    "PseudoLabels",
    "PyTree",
    "Rule",
    "Samples",
    "Scope",
    "SendFn",
    "ServerStep",
    "ServerTraining",
    "Setup",
    "StartFn",
    "Trained",
    "TrainedFn",
    "Unlabelled",
    "UnseenFn",
    "UpdateFn",
    "Variables",
    "WeightsFn",
]
