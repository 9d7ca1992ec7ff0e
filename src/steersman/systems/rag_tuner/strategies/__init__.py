"""Tuning strategies: which configuration to evaluate next."""

from steersman.systems.rag_tuner.strategies.base import Asked, Ledger, Strategy
from steersman.systems.rag_tuner.strategies.building import DEFAULT, NAMES, build_strategy
from steersman.systems.rag_tuner.strategies.factored import Factored
from steersman.systems.rag_tuner.strategies.fixed import Fixed
from steersman.systems.rag_tuner.strategies.halving import Halving
from steersman.systems.rag_tuner.strategies.random import Random
from steersman.systems.rag_tuner.strategies.tpe import Tpe

__all__ = [
    "DEFAULT",
    "NAMES",
    "Asked",
    "Factored",
    "Fixed",
    "Halving",
    "Ledger",
    "Random",
    "Strategy",
    "Tpe",
    "build_strategy",
]
