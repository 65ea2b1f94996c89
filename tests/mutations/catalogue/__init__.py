"""Every known way in which the product is broken on purpose."""

from __future__ import annotations

from typing import Final

from tests.mutations.catalogue import (
    brokers,
    claiming,
    completing,
    dispatching,
    leading,
    operating,
    ordering,
    waiting,
    writing,
)
from tests.mutations.mutation import Mutation

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *writing.MUTATIONS,
    *claiming.MUTATIONS,
    *dispatching.MUTATIONS,
    *completing.MUTATIONS,
    *ordering.MUTATIONS,
    *waiting.MUTATIONS,
    *leading.MUTATIONS,
    *operating.MUTATIONS,
    *brokers.MUTATIONS,
)
