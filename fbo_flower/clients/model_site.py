"""`ModelSite`: train scikit-learn models, pack them for the wire, and judge packed models in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.site import Judgement, SiteObjective
from fbo_flower.clients.site_agent import Shipment
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models import Limits, carries_rows, pack, predict

_NO_LIMIT = 2**62


@dataclass(frozen=True)
class ModelSite:
    """Train, pack and judge models on the rows of one site.

    Parameters
    ----------
    objective : loads the rows, makes models and computes losses
    options : what the site's operator allows
    """

    objective: SiteObjective
    options: SiteOptions

    @property
    def is_rate(self) -> bool:
        """Whether a loss is a misclassification rate."""
        return self.objective.is_rate

    def train(self, config: dict[str, Any], context: ObjectiveContext) -> Shipment:
        """Return the cross-validated loss `J_l`, and the model fitted to the whole inbag, packed."""
        trained = self.objective.train(config, context)
        rows = self.objective.load_data(context).inbag.x
        carries = tuple(carries_rows(trained.model, rows))
        return Shipment(trained.loss, trained.num_rows, pack(trained.model, _NO_LIMIT), carries)

    def judge(self, model: AnyArray, rows: str, context: ObjectiveContext) -> Judgement:
        """Return the loss of a packed model on some of the rows.

        Raises
        ------
        ModelError
            If the model is refused for every input; the text holds nothing about the site's rows.
        ObjectiveError
            If the model fails on this site's rows.
        """
        refusals: list[ModelError] = []

        def predictions(x: Any) -> AnyArray:
            try:
                return self._predict(model, np.asarray(x))
            except ModelError:
                refusals.extend(self._refusal_without_rows(model, np.asarray(x)))
                raise

        try:
            return self.objective.judge(predictions, rows, context)
        except ObjectiveError as error:
            if refusals:
                raise refusals[0] from error
            raise

    def _predict(self, model: AnyArray, x: AnyArray) -> AnyArray:
        options = self.options
        limits = Limits(
            seconds=options.model_seconds,
            memory_bytes=options.model_memory_bytes,
            max_bytes=options.max_model_bytes,
        )
        payload = np.asarray(model, dtype=np.uint8)
        return predict(payload, x, limits, options.trusted_types, in_process=options.in_process)

    def _refusal_without_rows(self, model: AnyArray, x: AnyArray) -> list[ModelError]:
        """Return the model's error on a row of zeros; an empty list if it has none.

        A library's error message may quote rows ("unknown categories [63.0]"), and a hostile model can
        provoke that. So the site sends only an error that also occurs without its rows.
        """
        try:
            self._predict(model, np.zeros((1, *x.shape[1:]), dtype=x.dtype))
        except ModelError as error:
            return [error]
        return []
